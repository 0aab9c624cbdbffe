"""The output of a prediction: Parquet files, and a manifest that names those that count.

    <output>/<snapshot>/manifest.json               written last; without it there is no output
                        sources-<attempt>.parquet   the files of the input with their checksums
                        data-<attempt>/part-….parquet
                        quarantine-<attempt>/….parquet

A snapshot is named by the model, the input and the settings. If the input has grown by files, its manifest also names the files of the
snapshot before.
"""

import re
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

from pipelines.config.messages.words import show_count
from pipelines.config.section import Section
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, find_dead_attempts, remove_attempt, remove_unnamed, sources_path
from pipelines.data.versions.manifest import SourceSummary
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.source_files import read_sources, source_summaries, write_sources
from pipelines.data.versions.storage import seal, unseal
from pipelines.data.versions.versions import confirmation_time
from pipelines.errors import CorruptError, DatasetError
from pipelines.etl.refusals import reason_lines

FORMAT = 1
_SNAPSHOT = re.compile(r"[0-9a-f]{12}")
_REMEDY = "remove its folder, and run jobs/predict.py again"


class Predictions(Section):
    """The manifest. All counts are of the whole input."""

    format: int = FORMAT
    snapshot: str
    """First 12 hex digits of the digest of model, input and settings."""
    attempt: str
    model: str
    """Its URI."""
    model_digest: str
    """SHA-256 of the weights."""
    dataset_digest: str
    """Digest of the dataset version that the model was trained on."""
    settings: dict[str, Any]
    """Settings that decide the output besides the model and the bytes of the input."""
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
        lines = [f"{place}/{self.snapshot}: {self.rows_out:,} of {show_count(self.rows_in, 'row')} predicted in "]
        lines[0] += f"{show_count(len(self.files), 'file')} with model {self.model_digest[:12]}"
        if self.refused:
            lines += ["the others are kept in its quarantine, with their reasons:", *reason_lines(self.refused, {})]
        return "\n".join(lines)


def commit_predictions(attempt: Attempt, manifest: Predictions, sources: Sources) -> Predictions:
    """Publish the manifest. Returns it, or that of another attempt at the same snapshot, which was faster. Raises DatasetError, with the
    numbers, if a row is lost or comes twice."""
    refused, rows_in_files = sum(manifest.refused.values()), (sum(manifest.files.values()), sum(manifest.quarantine.values()))
    if manifest.rows_in != manifest.rows_out + refused or (manifest.rows_out, refused) != rows_in_files:
        raise DatasetError(
            f"rows do not balance, so that nothing is committed: {manifest.rows_in:,} came in, {manifest.rows_out:,} were predicted and "
            f"{refused:,} refused; the files hold {rows_in_files[0]:,} and {rows_in_files[1]:,}; run again"
        )
    inside = f"{manifest.snapshot}/"
    named = {file.removeprefix(inside) for file in (*manifest.files, *manifest.quarantine) if file.startswith(inside)}
    remove_unnamed(attempt.filesystem, attempt.root, attempt.name, named)
    checksum = write_sources(attempt.filesystem, sources_path(attempt.root, attempt.name), sources)
    manifest = manifest.model_copy(update={"sources_checksum": checksum, "inputs": source_summaries(sources)})
    if storage.create(attempt.filesystem, f"{attempt.root}/manifest.json", seal(manifest.model_dump(mode="json"))):
        return manifest
    earlier = read_predictions(attempt.filesystem, attempt.root)
    assert earlier is not None
    if earlier.attempt != attempt.name:
        remove_attempt(attempt.filesystem, attempt.root, attempt.name)
    return earlier


def read_predictions(filesystem: FileSystem, root: str) -> Predictions | None:
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


def _snapshot_folders(filesystem: FileSystem, folder: str) -> list[str]:
    """The folders with names of snapshots. What else lies in the folder of an output is the user's."""
    return [entry.path for entry in storage.entries(filesystem, folder) if not entry.is_file and _SNAPSHOT.fullmatch(entry.base_name)]


def snapshots(filesystem: FileSystem, folder: str) -> list[Predictions]:
    """All committed snapshots of an output, the latest to be made or confirmed first."""
    manifests = [manifest for path in _snapshot_folders(filesystem, folder) if (manifest := read_predictions(filesystem, path))]
    return sorted(
        manifests, key=lambda manifest: confirmation_time(filesystem, f"{folder}/{manifest.snapshot}", manifest.created), reverse=True
    )


def file_count(manifest: Predictions) -> int:
    return sum(table.files for table in manifest.inputs.values())


def find_base(filesystem: FileSystem, folder: str, settings: Mapping[str, Any], sources: Sources) -> tuple[Predictions | None, Sources]:
    """The snapshot with equal settings that covers the most of the files and nothing else, and the files that it lacks."""
    checksums = {name: Counter(file.checksum for file in files) for name, files in sources.items()}
    for earlier in sorted(snapshots(filesystem, folder), key=file_count, reverse=True):
        if earlier.settings != settings:
            continue
        base_sources = read_sources(filesystem, sources_path(f"{folder}/{earlier.snapshot}", earlier.attempt), earlier.sources_checksum)
        base_checksums = {name: Counter(file.checksum for file in files) for name, files in base_sources.items()}
        if all(counts <= checksums.get(name, Counter()) for name, counts in base_checksums.items()):
            new_files: dict[str, list[Any]] = {name: [] for name in sources}
            for name, files in sources.items():
                covered = Counter(base_checksums.get(name, Counter[str]()))
                for file in files:
                    if covered[file.checksum]:
                        covered[file.checksum] -= 1
                    else:
                        new_files[name].append(file)
            return earlier, {name: tuple(files) for name, files in new_files.items()}
    return None, sources


def sweep(filesystem: FileSystem, folder: str) -> None:
    """Remove the files of attempts that died a day ago or more."""
    for path in _snapshot_folders(filesystem, folder):
        with suppress(CorruptError):
            manifest = read_predictions(filesystem, path)
            for attempt in find_dead_attempts(filesystem, path, [manifest.attempt] if manifest else []):
                remove_attempt(filesystem, path, attempt)


def open_predictions(path: str) -> pads.Dataset:
    """The predictions of a snapshot, or, given the folder of an output, of its snapshot that was made or confirmed last. Raises
    DatasetError if there are none, CorruptError if a file is missing or has another number of rows."""
    filesystem, folder = storage.locate(path)
    manifest = read_predictions(filesystem, folder)
    if manifest is not None:
        folder = folder.rpartition("/")[0]
    elif not (committed := snapshots(filesystem, folder)):
        raise DatasetError(f"{path} holds no predictions; run jobs/predict.py first")
    else:
        manifest = committed[0]
    for name, rows in manifest.files.items():
        try:
            file_rows = pq.read_metadata(f"{folder}/{name}", filesystem=filesystem).num_rows
        except (OSError, pa.ArrowException) as error:
            raise CorruptError(f"{folder}/{name} cannot be read: {error}; {_REMEDY}") from error
        if file_rows != rows:
            raise CorruptError(f"{folder}/{name} has {file_rows:,} rows; the manifest says {rows:,}; {_REMEDY}")
    return pads.dataset([f"{folder}/{name}" for name in manifest.files], format="parquet", filesystem=filesystem)
