"""Drafts the config for a Delta table, from a sample of its rows: of a folder, or of an address such as `delta:FOLDER@VERSION`."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.errors import SourceError
from pipelines.formats.delta.place import LOG
from pipelines.init.draft import Draft, Request
from pipelines.init.tables.parquet_table import sampled_table
from pipelines.init.tables.sample import WHOLE_BYTES, SampledTable, even_files, first_batches
from pipelines.init.tables.table_draft import draft_sampled_table

_ADDRESS = re.compile(r"delta:(.+?)(?:@(\d+))?")


def draft_folder(request: Request) -> Draft | None:
    """Draft the config for a table's folder; None for other data."""
    return draft_sampled_table(sample_delta(request.data), request) if Path(request.data, LOG).is_dir() else None


def draft_address(request: Request) -> Draft | None:
    """Draft the config for `delta:FOLDER` or `delta:FOLDER@VERSION`; None for other data."""
    match = _ADDRESS.fullmatch(request.data)
    if match is None:
        return None
    return draft_sampled_table(sample_delta(match[1], None if match[2] is None else int(match[2])), request)


def sample_delta(path: str, version: int | None = None) -> SampledTable:
    """The table as a sample of a version shows it, by default of the latest, without deleted rows. Raises SourceError if it cannot be read
    or is empty."""
    from pipelines.formats.delta.parquet_rows import FilePart  # noqa: PLC0415
    from pipelines.formats.delta.snapshot import check_deltalake, open_snapshot  # noqa: PLC0415, with what Spark imports
    from pipelines.formats.delta.table import row_reader  # noqa: PLC0415

    check_deltalake(path)
    snapshot = open_snapshot(path, version)
    files = even_files(list(snapshot.files))
    reader = row_reader(snapshot, "UTC")
    batches, is_complete = list[pa.RecordBatch](), len(files) == len(snapshot.files)
    for file in files:
        rows_of_file = reader.read(FilePart(file, 0, 1))
        batches += first_batches(rows_of_file, WHOLE_BYTES // len(files))
        is_complete &= next(rows_of_file, None) is None
    rows = sum(batch.num_rows for batch in batches)
    if not rows:
        raise SourceError(f"{snapshot.description} has no rows; give a version that has some")
    all_rows = rows if is_complete else max(rows, snapshot.rows or rows * len(snapshot.files) // len(files))
    settings: dict[str, Any] = {"format": "delta", "path": path, **({} if version is None else {"version": version})}
    return sampled_table(settings, pa.Table.from_batches(batches), all_rows, is_complete)


DRAFTERS = (draft_folder,)
ADDRESS_DRAFTERS = (draft_address,)
