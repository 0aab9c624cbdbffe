"""The output of a prediction: Parquet files, and a manifest that names those that count.

    <output>/<snapshot>/manifest.json               written last; without it there is no output
                        sources-<attempt>.parquet   the files of the input with their checksums
                        data-<attempt>/part-….parquet
                        quarantine-<attempt>/….parquet

A snapshot is named by the model, the input and the settings. If the input has grown by files, its manifest also names the files of the
snapshot before.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pydantic import AwareDatetime, Field, ValidationError

from pipelines.config.section import Section
from pipelines.data.versions import storage
from pipelines.data.versions.attempt import Attempt
from pipelines.data.versions.checksummed_json import seal, unseal
from pipelines.data.versions.commit import remove_attempt, remove_dead_attempts, remove_unnamed, sources_path
from pipelines.data.versions.manifest import SourceSummary
from pipelines.data.versions.sources import Sources, read_sources, source_summaries, write_sources
from pipelines.data.versions.versions import CONFIRMED
from pipelines.errors import CorruptError, DatasetError
from pipelines.etl.quality import reasons

FORMAT = 1
_REMEDY = "remove its folder, and run jobs/predict.py again"


class Predictions(Section):
    """The manifest. All counts are of the whole input."""

    format: int = FORMAT
    snapshot: str
    """First 12 hex digits of the digest of model, input and settings."""
    attempt: str
    model: str
    """The URI that was given."""
    model_digest: str
    """Of the weights."""
    dataset_digest: str
    """Of the dataset version that the model was trained on."""
    settings: dict[str, Any]
    """What decides the output besides the model and the bytes of the input."""
    inputs: dict[str, SourceSummary]
    """The tables that were read."""
    sources_checksum: str = ""
    files: dict[str, int]
    """Rows of each file with predictions, by its path below the output."""
    quarantine: dict[str, int]
    """Rows of each file with refused rows."""
    rows_parsed: int
    """Records in the files of the input."""
    rows_in: int
    """Rows that were to be predicted, with the malformed records."""
    rows_out: int
    refused: dict[str, int]
    """Refused rows by reason."""
    continues: str = ""
    """The snapshot whose files it takes over."""
    created: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    versions: dict[str, str] = {}

    def summary(self, place: str) -> str:
        """The last lines of a command: where the predictions are, and the refused rows by reason."""
        lines = [f"{place}/{self.snapshot}: {self.rows_out:,} of {self.rows_in:,} rows predicted in {len(self.files)} files"]
        lines[0] += f" with model {self.model_digest[:12]}"
        if self.refused:
            lines += ["the others are kept in its quarantine, with their reasons:", *reasons(self.refused, {})]
        return "\n".join(lines)


def check_balance(found: Predictions) -> None:
    """Raises DatasetError, with the numbers, if a row is lost or comes twice."""
    refused, written, kept = sum(found.refused.values()), sum(found.files.values()), sum(found.quarantine.values())
    if found.rows_in != found.rows_out + refused or (found.rows_out, refused) != (written, kept):
        raise DatasetError(
            f"rows do not balance, so that nothing is committed: {found.rows_in:,} came in, {found.rows_out:,} were predicted and "
            f"{refused:,} refused; the files hold {written:,} and {kept:,}; run again"
        )


def commit(attempt: Attempt, found: Predictions, sources: Sources) -> Predictions:
    """Publish the manifest, and return the one that is there now: this one, or that of another attempt at the same snapshot."""
    check_balance(found)
    inside = f"{found.snapshot}/"
    named = {file.removeprefix(inside) for file in (*found.files, *found.quarantine) if file.startswith(inside)}
    remove_unnamed(attempt.filesystem, attempt.root, attempt.name, named)
    checksum = write_sources(attempt.filesystem, sources_path(attempt.root, attempt.name), sources)
    found = found.model_copy(update={"sources_checksum": checksum, "inputs": source_summaries(sources)})
    if storage.create(attempt.filesystem, f"{attempt.root}/manifest.json", seal(found.model_dump(mode="json"))):
        return found
    earlier = read(attempt.filesystem, attempt.root)
    assert earlier is not None
    if earlier.attempt != attempt.name:
        remove_attempt(attempt.filesystem, attempt.root, attempt.name)
    return earlier


def read(filesystem: FileSystem, root: str) -> Predictions | None:
    """The manifest in a snapshot's folder; None if there is none. Raises CorruptError if it is not as it was written."""
    path = f"{root}/manifest.json"
    text = storage.read(filesystem, path)
    if text is None:
        return None
    try:
        values, is_sealed = unseal(text)
        if not is_sealed:
            raise ValueError("it has no checksum")
        if values.get("format") != FORMAT:
            raise ValueError(f"it has format {values.get('format')}, and this version of Lockstep reads format {FORMAT}")
        return Predictions.model_validate(values)
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise CorruptError(f"{path} is not a manifest of predictions as it was written: {first}; {_REMEDY}") from error


def snapshots(filesystem: FileSystem, folder: str) -> list[Predictions]:
    """All committed ones of an output, the one that was made or confirmed last first."""
    manifests = [manifest for entry in storage.entries(filesystem, folder) if (manifest := read(filesystem, entry.path))]
    return sorted(manifests, key=lambda manifest: _time(filesystem, f"{folder}/{manifest.snapshot}", manifest), reverse=True)


def _time(filesystem: FileSystem, root: str, manifest: Predictions) -> int:
    """Nanoseconds since 1970."""
    names = [entry.base_name.removeprefix(CONFIRMED) for entry in storage.entries(filesystem, root)]
    return max(int(manifest.created.timestamp() * 1e9), *(int(name) for name in names if name.isdecimal()), 0)


def continued(filesystem: FileSystem, folder: str, settings: Mapping[str, Any], sources: Sources) -> tuple[Predictions | None, Sources]:
    """The snapshot with equal settings that covers the most of the files and nothing else, and the files that it lacks."""
    wanted = {name: Counter(file.checksum for file in files) for name, files in sources.items()}
    for earlier in sorted(snapshots(filesystem, folder), key=lambda found: sum(one.files for one in found.inputs.values()), reverse=True):
        if earlier.settings != settings:
            continue
        known = read_sources(filesystem, sources_path(f"{folder}/{earlier.snapshot}", earlier.attempt), earlier.sources_checksum)
        had = {name: Counter(file.checksum for file in files) for name, files in known.items()}
        if all(counts <= wanted.get(name, Counter()) for name, counts in had.items()):
            return earlier, {name: _without(files, had.get(name, Counter())) for name, files in sources.items()}
    return None, sources


def _without(files: tuple[Any, ...], had: Counter[str]) -> tuple[Any, ...]:
    left, kept = Counter(had), []
    for file in files:
        if left[file.checksum]:
            left[file.checksum] -= 1
        else:
            kept.append(file)
    return tuple(kept)


def sweep(filesystem: FileSystem, folder: str) -> None:
    """Remove the files of attempts that died a day ago or more."""
    for entry in storage.entries(filesystem, folder):
        with suppress(CorruptError):
            found = read(filesystem, entry.path)
            remove_dead_attempts(filesystem, entry.path, found.attempt if found else "")


def open_predictions(path: str) -> pads.Dataset:
    """The predictions of a snapshot, or, given the folder of an output, of its snapshot that was made or confirmed last.

    Raises DatasetError if there are none, CorruptError if a file is missing or has another number of rows.
    """
    filesystem, folder = storage.locate(path)
    found = read(filesystem, folder)
    if found is not None:
        folder = folder.rpartition("/")[0]
    elif not (committed := snapshots(filesystem, folder)):
        raise DatasetError(f"{path} holds no predictions; run jobs/predict.py first")
    else:
        found = committed[0]
    for name, rows in found.files.items():
        try:
            there = pq.read_metadata(f"{folder}/{name}", filesystem=filesystem).num_rows
        except (OSError, pa.ArrowException) as error:
            raise CorruptError(f"{folder}/{name} cannot be read: {error}; {_REMEDY}") from error
        if there != rows:
            raise CorruptError(f"{folder}/{name} has {there:,} rows; the manifest says {rows:,}; {_REMEDY}")
    return pads.dataset([f"{folder}/{name}" for name in found.files], format="parquet", filesystem=filesystem)
