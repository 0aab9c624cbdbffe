"""Refused rows: counted in a report, and kept with their reasons in the attempt's quarantine."""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.data.features.raw import python_rows, record_value
from pipelines.data.versions import storage
from pipelines.data.versions.commit import REPORT_SCHEMA, Attempt, Report, merge_reports
from pipelines.etl.refusals import REASON, SUPERSEDED
from pipelines.etl.splits.split_assignment import INTERNAL

QUARANTINE = pa.schema([("reason", pa.string()), ("record", pa.string()), ("source", pa.string())])


def write_malformed(malformed: DataFrame, attempt: Attempt) -> Report:
    """Write malformed records, as `sources.read_tables` returns them, to the quarantine."""
    return merge_reports(malformed.mapInArrow(partial(_write_malformed, attempt), REPORT_SCHEMA).toArrow())


def sample_refused(rows: DataFrame) -> Report:
    """The refused ones of the rows, counted by reason, with samples; nothing is written."""
    return merge_reports(rows.where(F.col(REASON) != SUPERSEDED).mapInArrow(_count_refused, REPORT_SCHEMA).toArrow())


def _write_malformed(attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    report = Report()
    with Quarantine(attempt, report) as quarantine:
        for batch in batches:
            quarantine.write(batch.cast(QUARANTINE))
            counted = pa.Table.from_batches([batch]).group_by("reason").aggregate([("record", "min"), ([], "count_all")])
            for row in counted.to_pylist():
                report.refuse(row["reason"], row["record_min"] or "", row["count_all"])
    yield report.to_batch()


def _count_refused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    report = Report()
    for batch in batches:
        for reason, record in zip(batch.column(REASON).to_pylist(), _records(batch), strict=True):
            report.refuse(reason, record)
    yield report.to_batch()


def _records(rows: pa.RecordBatch) -> list[str]:
    """The query's columns of each row as JSON."""
    values = python_rows(rows.drop_columns([name for name in rows.schema.names if name in INTERNAL]))
    return [json.dumps(record_value(row), ensure_ascii=False) for row in values]


class Quarantine:
    """A task's file of refused rows, created with the first one and named in the report."""

    def __init__(self, attempt: Attempt, report: Report, allowed: float = math.inf) -> None:
        """Beyond `allowed` rows, rows are only counted, since the version will fail."""
        self._attempt, self._report, self._allowed = attempt, report, allowed
        self._file = ""
        self._writer: pq.ParquetWriter | None = None

    def set_aside(self, batch: pa.RecordBatch, reasons: pa.Array, kind: Callable[[str], str] = str) -> pa.RecordBatch:
        """Count and keep each row that has a reason, under its `kind`; return the others. Superseded rows are counted alone."""
        is_superseded = pc.fill_null(pc.equal(reasons, SUPERSEDED), False)
        if superseded := pc.sum(is_superseded).as_py():
            self._report.superseded += superseded
            batch, reasons = batch.filter(pc.invert(is_superseded)), reasons.filter(pc.invert(is_superseded))
        if reasons.null_count == len(batch):
            return batch
        texts = reasons.drop_null().to_pylist()
        records = _records(batch.filter(reasons.is_valid()))
        for text, record in zip(texts, records, strict=True):
            self._report.refuse(kind(text), record)
        if self._report.refused.total() <= self._allowed:
            columns = [pa.array(texts), pa.array(records), pa.nulls(len(texts), pa.string())]
            self.write(pa.RecordBatch.from_arrays(columns, schema=QUARANTINE))
        return batch.filter(reasons.is_null())

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows of the schema QUARANTINE. Raises DatasetError if they cannot be written."""
        folder = f"quarantine-{self._attempt.name}"
        with storage.store_errors(f"{self._attempt.root}/{folder}"):
            if self._writer is None:
                self._file = self._attempt.new_file(folder, "part")
                self._writer = pq.ParquetWriter(f"{self._attempt.root}/{self._file}", QUARANTINE, filesystem=self._attempt.filesystem)
            self._writer.write_batch(batch)
        self._report.quarantine[self._file] += len(batch)

    def __enter__(self) -> "Quarantine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            with storage.store_errors(f"{self._attempt.root}/quarantine-{self._attempt.name}"):
                self._writer.close()
