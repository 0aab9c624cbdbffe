"""Drafts the config for a Delta table, from a sample of its rows: of a folder, or of an address such as `delta:FOLDER@VERSION`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.errors import SourceError
from pipelines.formats.delta.place import LOG
from pipelines.formats.delta.settings import DeltaLakeTable, split_address
from pipelines.init.draft import Draft, Request
from pipelines.init.tables.parquet_table import sampled_table
from pipelines.init.tables.sample import PIECES, WHOLE_BYTES, SampledTable, even_files, even_rows, first_batches
from pipelines.init.tables.table_draft import draft_sampled_table

if TYPE_CHECKING:
    from pipelines.formats.delta.snapshot import Snapshot


def draft_folder(request: Request) -> Draft | None:
    """Draft the config for a table's folder; None for other data."""
    return draft_sampled_table(sample_delta(request.data), request) if Path(request.data, LOG).is_dir() else None


def draft_address(request: Request) -> Draft | None:
    """Draft the config for `delta:FOLDER` or `delta:FOLDER@VERSION`; None for other data."""
    return draft_sampled_table(sample_delta(*split_address(request.data)), request) if request.data.startswith("delta:") else None


def sample_delta(path: str, version: int | None = None) -> SampledTable:
    """The table as a sample of a version shows it, by default of the latest, without deleted rows. Raises SourceError if it cannot be read
    or is empty."""
    from pipelines.formats.delta.snapshot import check_deltalake, open_snapshot  # noqa: PLC0415, with what Spark imports

    check_deltalake(path)
    snapshot = open_snapshot(path, version)
    sample, is_complete = _read_sample(snapshot, WHOLE_BYTES)
    if not len(sample):
        raise SourceError(f"{snapshot.description} has no rows; give a version that has some")
    all_rows = len(sample) if is_complete else max(len(sample), snapshot.rows or len(sample) * len(snapshot.files) // PIECES)
    settings: dict[str, Any] = {"format": "delta", "path": path, **({} if version is None else {"version": version})}
    return sampled_table(settings, sample, all_rows, is_complete)


def rows_to_try(settings: DeltaLakeTable, most_bytes: int) -> pa.Table | None:
    """Some rows of a large version; None of one whose files have at most so many bytes."""
    from pipelines.formats.delta.snapshot import open_snapshot  # noqa: PLC0415

    snapshot = open_snapshot(settings.path, settings.version, settings.timestamp)
    if sum(file.bytes for file in snapshot.files) <= most_bytes:
        return None
    return even_rows(_read_sample(snapshot, most_bytes)[0], most_bytes)


def _read_sample(snapshot: "Snapshot", most_bytes: int) -> tuple[pa.Table, bool]:
    """Rows of files at even distances, and whether these are all."""
    from pipelines.formats.delta.parquet_rows import FilePart  # noqa: PLC0415
    from pipelines.formats.delta.table import row_reader  # noqa: PLC0415

    files = even_files(list(snapshot.files))
    reader = row_reader(snapshot, "UTC")
    batches, is_complete = list[pa.RecordBatch](), len(files) == len(snapshot.files)
    for file in files:
        rows_of_file = reader.read(FilePart(file, 0, 1))
        batches += first_batches(rows_of_file, most_bytes // len(files))
        is_complete &= next(rows_of_file, None) is None
    return pa.Table.from_batches(batches, reader.schema), is_complete


DRAFTERS = (draft_folder,)
ADDRESS_DRAFTERS = (draft_address,)
