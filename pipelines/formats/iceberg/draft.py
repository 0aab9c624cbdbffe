"""Drafts the config for an Iceberg table, from a sample of its current rows."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.errors import SourceError
from pipelines.formats.iceberg.library import check_pyiceberg
from pipelines.formats.iceberg.settings import IcebergTable
from pipelines.init.draft import Draft, Request
from pipelines.init.tables.parquet_table import sampled_table
from pipelines.init.tables.sample import WHOLE_BYTES, SampledTable, even_files, even_rows, first_batches
from pipelines.init.tables.table_draft import draft_sampled_table

if TYPE_CHECKING:
    from pipelines.formats.iceberg.planning import ScanPlan
    from pipelines.formats.iceberg.snapshot import TableSnapshot

_ENDINGS = (".metadata.json", ".metadata.json.gz")


def draft_iceberg(request: Request) -> Draft | None:
    """Draft the config for a table's folder or metadata file. None for other data."""
    path = Path(request.data)
    is_table = path.name.endswith(_ENDINGS) if path.is_file() else any(path.glob("metadata/*.metadata.json*"))
    return draft_sampled_table(sample_iceberg(request.data), request) if is_table else None


def sample_iceberg(data: str) -> SampledTable:
    """The table as a sample of its current snapshot shows it, without deleted rows. Raises SourceError if it cannot be read or is empty."""
    check_pyiceberg(data)
    from pipelines.formats.iceberg.snapshot import choose_snapshot  # noqa: PLC0415, only who reads Iceberg has pyiceberg installed

    snapshot = choose_snapshot(IcebergTable(path=data))
    plan = snapshot.plan()
    sample, is_complete = _read_sample(snapshot, plan, WHOLE_BYTES)
    if not len(sample):
        raise SourceError(f"{data} has no rows in its current snapshot; give a table that has some")
    all_rows = len(sample) if is_complete else max(len(sample), sum(file.records for file in plan.files))
    table = sampled_table({"format": "iceberg", "path": data}, sample, all_rows, is_complete)
    names = ", ".join(name for name, _ in snapshot.rounded_columns)
    return replace(table, doubts=(f"{names}: nanoseconds, which are rounded down to microseconds",)) if names else table


def rows_to_try(settings: IcebergTable, most_bytes: int) -> pa.Table | None:
    """Some rows of a large snapshot; None of one whose files have at most so many bytes."""
    from pipelines.formats.iceberg.snapshot import choose_snapshot  # noqa: PLC0415

    snapshot = choose_snapshot(settings)
    plan = snapshot.plan()
    if sum(file.bytes for file in plan.files) <= most_bytes:
        return None
    return even_rows(_read_sample(snapshot, plan, most_bytes)[0], most_bytes)


def _read_sample(snapshot: "TableSnapshot", plan: "ScanPlan", most_bytes: int) -> tuple[pa.Table, bool]:
    """Rows of files at even distances, and whether these are all."""
    from pipelines.formats.iceberg.data_files import Piece  # noqa: PLC0415

    files = list(plan.files)
    reader, sampled_files = snapshot.reader(plan), even_files(files)
    batches, is_complete = list[pa.RecordBatch](), len(sampled_files) == len(files)
    for file in sampled_files:
        rows_of_file = reader([Piece(file, 0, None)])
        batches += first_batches(rows_of_file, most_bytes // len(sampled_files))
        is_complete &= next(rows_of_file, None) is None
    return pa.Table.from_batches(batches) if batches else pa.table({}), is_complete


DRAFTERS = (draft_iceberg,)
