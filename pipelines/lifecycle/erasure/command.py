"""Tells what an erasure has done or would do, as text or JSON, and fails where a version could not be searched."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from pipelines.config import Config
from pipelines.config.messages.words import show_count
from pipelines.data.versions import storage
from pipelines.errors import DatasetError
from pipelines.lifecycle.erasure.certificate import check_certificate
from pipelines.lifecycle.erasure.erase import ErasureResult, erase_rows, read_grace
from pipelines.lifecycle.erasure.erased_keys import parse_keys
from pipelines.runtime.progress import tell


def erase_and_tell(config: Config, keys: Sequence[str], grace: str, yes: bool, predictions: Sequence[str], conf: str) -> None:
    """Erase rows, and tell where they were. Raises DatasetError at the end if some version could not be searched."""
    erasure = erase_rows(config, keys, read_grace(grace), yes, predictions, f"lockstep train {conf}")
    tell("result", "\n".join(describe_erasure(erasure, bool(keys), yes, conf)), **asdict(erasure), is_erased=yes)
    if erasure.unsearchable:
        listed = "; ".join(f"{name}: {reason}" for name, reason in erasure.unsearchable.items())
        raise DatasetError(f"{show_count(len(erasure.unsearchable), 'version')} of {config.dataset.path} could not be searched: {listed}")


def check_and_tell(config: Config, certificate: str, keys: Sequence[str]) -> None:
    """Compare a certificate with the files. Raises DatasetError if they differ."""
    filesystem, folder = storage.locate(config.dataset.path)
    parsed = parse_keys(keys, config.dataset.key) if keys else []
    faults = check_certificate(filesystem, folder, storage.locate(certificate)[1], parsed, config.name)
    if faults:
        raise DatasetError(f"{certificate}: {'; '.join(faults)}")
    tell("result", f"{certificate}: all is as it says", certificate=certificate)


def describe_erasure(erasure: ErasureResult, has_keys: bool, yes: bool, conf: str) -> Iterator[str]:
    """The lines of the text."""
    verb = "erased" if yes else "would erase"
    for name, counts in erasure.versions.items():
        rows = ", ".join(f"{split} {count:,}" for split, count in counts["rows"].items()) or "none"
        yield f"version {name}: {verb} rows: {rows}; refused rows: {counts['quarantined']:,}"
    for path, output in erasure.predictions.items():
        lacking = (
            f"; {show_count(len(output['without_key']), 'file')} without the key could not be searched" if output["without_key"] else ""
        )
        yield f"predictions {path}: {verb} rows: {output['rows']:,}{lacking}"
    if has_keys and not erasure.has_rows:
        yield "no row of these keys is there"
    yield from (
        f"artifact {name}: {'removed or written again' if yes else 'would be removed or written again'}" for name in erasure.artifacts
    )
    for model in erasure.models:
        names = [f"{version['name']}/{version['version']}" for version in model["versions"]]
        names += [f"{version['name']}@{alias}" for version in model["versions"] for alias in version["aliases"]]
        endpoint = f"; served by the endpoint as {model['endpoint']}" if model["endpoint"] else ""
        registered = f"{', '.join(names) or 'not registered'}{endpoint}"
        yield f"trained on them: {model['kind']} {model['run']} ({registered}); again: {model['train_again']}"
    yield from (f"still training on them: run {run}; stop it, since it will log more of them" for run in erasure.running)
    yield from (f"certificate {path}" for path in erasure.certificates)
    for name, due in erasure.waiting.items():
        yield (
            f"erasure {name}: old files wait until {due}; then run `lockstep erase {conf}`"
            if due != "unfinished"
            else (f"erasure {name} is unfinished: run `lockstep erase {conf}`, which goes on")
        )
    if has_keys and erasure.has_rows and not yes:
        yield "nothing was changed; add --yes to erase"
