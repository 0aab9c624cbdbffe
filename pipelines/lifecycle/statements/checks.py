"""Checks of a statement that need no training: each compares one part with what this machine has, and has the name of that part."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pipelines.config import Config
from pipelines.config.messages.words import name_list, show_count
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.dataset_record import (
    DATASET,
    SOURCES,
    compare_datasets,
    dataset_descriptor,
    order_record,
    read_row_digests,
    source_descriptors,
)
from pipelines.lifecycle.statements.envelope import Envelope, is_signed_by
from pipelines.lifecycle.statements.keys import PublicKey, key_id
from pipelines.lifecycle.statements.materials import (
    CODE,
    MODELS,
    PACKAGES,
    Descriptor,
    compare_with_commit,
    hash_code,
    model_descriptors,
    package_descriptors,
)
from pipelines.lifecycle.statements.model_signature import NOT_SIGNED
from pipelines.lifecycle.statements.provenance import WEIGHTS, Statement, identities, section_digests
from pipelines.serving.model.logged_model import file_digests

Outcome = Literal["right", "differs", "not checked"]
CLOCK_ERROR = timedelta(minutes=5)
"""A statement may come from a clock that is ahead of this one by so much."""
_MOST_NAMES = 5


@dataclass(frozen=True)
class PartCheck:
    name: str
    """The part of the statement: rows, weights, config, code, environment, time, signature, key, order, encoder state, sources, steps."""
    outcome: Outcome
    text: str
    """What was compared, or what differs."""


def check_signatures(envelope: Envelope, key: PublicKey | None) -> Iterator[PartCheck]:
    """Whether every signature is of the payload, and one of them by `key`, if that is given."""
    wrong: list[str] = []
    right: list[str] = []
    for signature in envelope.signatures:
        signer = key if key is not None and signature.key == key_id(key) else signature.public_key
        if signer is not None:
            is_right = is_signed_by(envelope, signature, signer) and key_id(signer) == signature.key
            (right if is_right else wrong).append(signature.key[:12])
    if wrong:
        yield PartCheck("signature", "differs", f"what key {name_list(wrong)} signed is not this statement")
    elif not right:
        signers = name_list([signature.key[:12] for signature in envelope.signatures])
        yield PartCheck("signature", "differs", f"the public key of {signers} is neither in the statement nor given; give it by --key")
    else:
        yield PartCheck("signature", "right", f"signed by key {name_list(right)}")
    if key is None:
        yield PartCheck("key", "not checked", "no --key is given: whoever the signer is, the payload is as it was signed")
    elif any(signature.key == key_id(key) for signature in envelope.signatures):
        yield PartCheck("key", "right", f"{key_id(key)[:12]} is one of the signers")
    else:
        signers = name_list([signature.key[:12] for signature in envelope.signatures])
        yield PartCheck("key", "differs", f"the key given is {key_id(key)[:12]}, and the statement is signed by {signers}")


def check_sections(statement: Statement) -> Iterator[PartCheck]:
    """Name the sections that are not those that the statement was made with."""
    stated, present = statement.internal["sections"], section_digests(statement.values)
    for name, digest in present.items():
        if stated.get(name) != digest:
            yield PartCheck(name, "differs", "this part was altered after the statement was made")


def check_time(statement: Statement) -> PartCheck:
    """Whether the dataset was made before the training began, that before it ended, and that before now."""
    names = {"the dataset was made": _creation_time(statement), "the run began": "startedOn", "it ended": "finishedOn"}
    times: list[tuple[str, datetime]] = []
    for name, source in names.items():
        text = statement.metadata.get(source, "") if source in ("startedOn", "finishedOn") else source
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return PartCheck("time", "differs", f"{name} at {text!r}, which is no time")
        if time.tzinfo is None:
            return PartCheck("time", "differs", f"{name} at {text}, which has no time zone")
        times.append((name, time))
    times.append(("now it is", datetime.now(UTC) + CLOCK_ERROR))
    for (name, time), (later, later_time) in pairwise(times):
        if time > later_time and not (statement.kind == "etl" and later == "the run began"):
            return PartCheck("time", "differs", f"{name} {time.isoformat()}, and {later} {later_time.isoformat()}")
    return PartCheck(
        "time", "right", f"from {statement.metadata['startedOn']} to {statement.metadata['finishedOn']}, by the signer's clock"
    )


def check_config(statement: Statement, config: Config, decisive: Mapping[str, tuple[Any, Any]]) -> PartCheck:
    """Whether the identities are those of the config, and `decisive` is empty: settings that another config has otherwise, by key."""
    stated, present = statement.internal.get("identities", {}), identities(config)
    if different := [name for name, digest in stated.items() if present.get(name) != digest]:
        return PartCheck(
            "config", "differs", f"the identity of the {different[0]} that was made is not that of the config in the statement"
        )
    stated_models = {name: descriptor for name, descriptor in statement.dependencies.items() if name.startswith(MODELS)}
    present_models = {descriptor["name"]: descriptor for descriptor in model_descriptors(config)}
    if different := [name for name in {**stated_models, **present_models} if stated_models.get(name) != present_models.get(name)]:
        return PartCheck("config", "differs", f"{different[0]} is not the model that task.members names in the config of the statement")
    if decisive:
        key, (before, now) = next(iter(decisive.items()))
        return PartCheck(
            "config", "differs", f"{key} is {before} in the statement, and {now} in the config given; {len(decisive)} settings differ"
        )
    return PartCheck("config", "right", "its identities are those of what was made")


def check_code(statement: Statement, config: Config) -> PartCheck:
    """Whether the code that runs here has the digests of the statement, and is that of the commit that it names."""
    descriptor = statement.dependencies.get(CODE)
    if descriptor is None:
        return PartCheck("code", "differs", "the statement names none")
    stated, present = dict(descriptor["annotations"]["files"]), hash_code(config)
    if different := [name for name in {**stated, **present} if stated.get(name) != present.get(name)]:
        return PartCheck(
            "code", "differs", f"{_list(different)} is not the code of the statement; check out what it names: {_commit(descriptor)}"
        )
    commit = descriptor["digest"].get("gitCommit", "")
    if commit and not descriptor["annotations"].get("dirty"):
        comparison = compare_with_commit(commit)
        if comparison in ("different", "unknown"):
            why = "has other files" if comparison == "different" else "is none of this checkout"
            return PartCheck("code", "differs", f"commit {commit[:12]} {why}, although the files here are those of the statement")
    return PartCheck("code", "right", f"{show_count(len(present), 'file')}, {_commit(descriptor)}")


def check_environment(statement: Statement, config: Config) -> PartCheck:
    """Whether the packages of the statement are installed here, with the same files."""
    stated = {name: descriptor for name, descriptor in statement.dependencies.items() if name.startswith(PACKAGES)}
    present = {descriptor["name"]: descriptor for descriptor in package_descriptors(config)}
    differences = [name for name in {**stated, **present} if stated.get(name) != present.get(name)]
    if not differences:
        return PartCheck("environment", "right", f"{len(present)} packages, with the files of their records")
    return PartCheck("environment", "differs", "; ".join(_differing_packages(differences[:_MOST_NAMES], stated, present)))


def check_model_files(statement: Statement, folder: Path) -> PartCheck:
    """Whether a folder has exactly the model's files."""
    stated = {name: digest for name, digest in statement.subjects.items() if name != WEIGHTS}
    present = {name: digest for name, digest in file_digests(folder).items() if name != NOT_SIGNED}
    if not present:
        raise ConfigError(f"--model is {folder}, which holds no files; name the folder of the downloaded model")
    if different := [name for name in sorted({**stated, **present}) if stated.get(name) != present.get(name)]:
        return PartCheck("weights", "differs", f"of the model's files {_list(different)} is not that of the statement")
    return PartCheck("weights", "right", f"{show_count(len(present), 'file')} of {folder}")


def check_dataset(statement: Statement, version: Version, is_from_sources: bool) -> Iterator[PartCheck]:
    """Whether a version has the rows, the encoders and the order of the statement. Every row is read."""
    stated = statement.dependencies.get(DATASET)
    if stated is None:
        yield PartCheck("rows", "differs", "the statement names no dataset")
        return
    present = read_row_digests(version)
    differences = compare_datasets(stated, dataset_descriptor(present))
    origin = "made from the sources" if is_from_sources else f"in {version.root}"
    rows = sum(version.rows(split) for split in version.manifest.splits)
    for name, kind in (("rows", "the rows"), ("encoder state", "the encoders"), ("order", "the order of rows")):
        if places := differences.get(name):
            yield PartCheck(name, "differs", f"{kind} of {_list(places)} {origin} are not those of the statement")
        elif name == "rows":
            yield PartCheck(name, "right", f"{rows:,} rows {origin}, digest {present.digest[:12]}")
        elif name == "encoder state":
            yield PartCheck(name, "right", f"{len(version.columns)} columns")
    yield from _check_sources(statement, version, is_from_sources)


def _check_sources(statement: Statement, version: Version, is_from_sources: bool) -> Iterator[PartCheck]:
    stated = {name: descriptor for name, descriptor in statement.dependencies.items() if name.startswith(SOURCES)}
    present = {descriptor["name"]: descriptor for descriptor in source_descriptors(version)}
    if different := [name for name in {**stated, **present} if stated.get(name) != present.get(name)]:
        names = _list([name.removeprefix(SOURCES) for name in different])
        yield PartCheck("sources", "differs", f"the files of {names} are not those of the statement")
    elif not is_from_sources:
        yield PartCheck("sources", "not checked", "the dataset was there; --from-sources makes it again")
    else:
        yield PartCheck("sources", "right", f"{show_count(len(present), 'raw table')}")


def check_row_order(statement: Statement, config: Config, version: Version) -> PartCheck:
    """Whether the config gives the order of training rows that the statement has."""
    stated, present = dict(statement.internal.get("order", {})), order_record(config, version)
    if different := [name for name in {**stated, **present} if stated.get(name) != present.get(name)]:
        return PartCheck("order", "differs", f"the {_list(different)} of the order of rows is not what config and rows give")
    return PartCheck("order", "right", "the rows of the first steps are those of the config")


def list_differences(checks: Iterable[PartCheck]) -> list[str]:
    """Names of the checks that found a difference, each once."""
    return list(dict.fromkeys(check.name for check in checks if check.outcome == "differs"))


def _creation_time(statement: Statement) -> str:
    return str(statement.dependencies.get(DATASET, {}).get("annotations", {}).get("created", ""))


def _commit(descriptor: Descriptor) -> str:
    commit = descriptor["digest"].get("gitCommit", "")
    dirty = " with changes" if descriptor["annotations"].get("dirty") else ""
    return f"commit {commit[:12]}{dirty}" if commit else "no commit"


def _differing_packages(names: Iterable[str], stated: Mapping[str, Descriptor], present: Mapping[str, Descriptor]) -> Iterator[str]:
    for name in names:
        before, now = (descriptors.get(name, {}).get("uri", "@missing").rpartition("@")[2] for descriptors in (stated, present))
        short = name.removeprefix(PACKAGES)
        yield f"{short} {now} has other files than in the statement" if before == now else f"{short} {before} in the statement, {now} here"


def _list(names: list[str]) -> str:
    first_names = [re.sub(r"\s+", " ", name) for name in names[:_MOST_NAMES]]
    return ", ".join(first_names) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
