"""Shuffles the rows to their parts and writes them, with one Spark task for each part.

1. `write_parts` shuffles rows to their part, independently of Spark's settings and cores.
2. Its tasks encode batch by batch, so that raw rows never accumulate, then sort the encoded rows and write them. Documents are
   sorted whole and then cut into windows, which are shuffled, since neighbouring windows are similar.
3. The same task writes refused rows, and rows that an encoder refuses, to the attempt's quarantine: every row that it
   receives is in its part or there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.data.features import Encoders, refusal_kind
from pipelines.data.features.raw import is_category
from pipelines.data.versions import storage
from pipelines.data.versions.commit import REPORT_SCHEMA, Attempt, Report, merge_reports
from pipelines.data.versions.manifest import SPLITS, FittedEncoder, tensor_columns
from pipelines.data.versions.parts import write_part
from pipelines.data.versions.raw_inputs import MOST_COLUMNS, MOST_ROWS, RAW_ROWS, side_file, write_raw_rows
from pipelines.data.versions.row_keys import KEYS, key_table, write_keys
from pipelines.data.versions.rows_digest import sum_document_hashes, sum_row_hashes
from pipelines.data.versions.schema import TensorColumn, arrow_schema, from_numpy, to_numpy
from pipelines.etl.quarantine import Quarantine
from pipelines.etl.refusals import REASON, accepted_rows
from pipelines.etl.splits.split_assignment import (
    CONTENT,
    INTERNAL,
    NEWEST,
    PART,
    PLACE,
    ROW,
    SPLIT,
    TRAIN,
    assign_part,
    exact_column,
)
from pipelines.etl.statistics.page_summary import PageColumns, PageSummary
from pipelines.etl.statistics.row_sample import abridge
from pipelines.runtime import philox

TASKS_OF_INCREMENT = 8
"""Tasks that write an increment's largest split, at least, where its rows suffice. No matter of cores, since parts decide an order."""


def sort_rows(place: np.ndarray, columns: dict[str, list[np.ndarray]]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Sort encoded columns, given in pieces along the rows, by `place`, uint64 of shape (rows,). Returns them with the indices of the rows
    in that order.

    Empties the lists to avoid holding a part twice. Rows with equal hashes are usually equal, but −0 and 0, or nested NULLs, have the same
    hash: then the bytes decide, so that the result never depends on the order of arrival."""
    whole_columns = {}
    for name, pieces in columns.items():
        whole_columns[name] = np.concatenate(pieces)
        pieces.clear()
    order = np.argsort(place)
    is_repeat = _repeats(place[order])
    later_rows = np.flatnonzero(is_repeat)
    if len(later_rows):  # sort those parts of the order whose rows have the same hash and differ
        rows = {name: values.reshape(len(values), -1).view(np.uint8) for name, values in whole_columns.items()}
        differ = np.zeros(len(later_rows), bool)
        for bytes_of_column in rows.values():
            differ |= (bytes_of_column[order[later_rows]] != bytes_of_column[order[later_rows - 1]]).any(axis=1)
        starts = np.flatnonzero(~is_repeat)
        runs = np.unique(np.searchsorted(starts, later_rows[differ], side="right") - 1)
        ends = np.append(starts[1:], len(is_repeat))
        for start, end in zip(starts[runs], ends[runs], strict=True):
            order[start:end] = sorted(order[start:end], key=lambda row: b"".join(values[row].tobytes() for values in rows.values()))
    return {name: whole_columns.pop(name)[order] for name in list(whole_columns)}, order


def document_order(place: np.ndarray, documents: list[np.ndarray]) -> list[int]:
    """The indices of documents, sorted by `place` and then by their bytes."""
    order = np.argsort(place)
    if not _repeats(place[order]).any():
        return list(order)
    return sorted(order, key=lambda row: (place[row], documents[row].tobytes()))


def _repeats(values: np.ndarray) -> np.ndarray:
    """bool, shape (rows,): whether a sorted value equals the one before it."""
    return np.concatenate([[False], values[1:] == values[:-1]]) if len(values) else np.empty(0, bool)


@dataclass(frozen=True)
class RawRowSelection:
    key: tuple[str, ...] = ()
    splits: frozenset[int] = frozenset()
    """Indices of the splits whose rows are kept."""

    def select(self, batch: pa.RecordBatch) -> pa.Table:
        """A copy of the rows with the columns of the query, those of the key first: texts are cut, and bytes and nested values left out."""
        names = [field.name for field in batch.schema if field.name not in INTERNAL and is_category(field.type)]
        ordered = [*(name for name in self.key if name in names), *(name for name in names if name not in self.key)]
        indices = pa.array(np.arange(len(batch)))
        return pa.table({name: abridge(batch.column(name).take(indices)) for name in ordered[:MOST_COLUMNS]})


def splits_with_raw_rows(rows: dict[int, int], encoders: dict[str, FittedEncoder]) -> frozenset[int]:
    """The splits other than train with few enough rows; none if rows are packed into windows."""
    if Encoders(encoders).packer is not None:
        return frozenset()
    return frozenset(split for split, count in rows.items() if split != TRAIN and count <= MOST_ROWS)


@dataclass(frozen=True)
class WritingJob:
    """The parameters of the writing tasks."""

    attempt: Attempt
    encoders: dict[str, FittedEncoder]
    parts: dict[int, range]
    """The numbers of each split's parts over all splits, by the split's index."""
    row_group_bytes: int
    keys: tuple[str, ...]
    """The columns of the rows that are kept beside the parts to find rows by their keys, in the order of `row_keys.COLUMNS`."""
    allowed: int
    """Rows that may be refused. A task that refuses more only counts them, since the version will fail."""
    raw_rows: RawRowSelection = field(default_factory=RawRowSelection)
    """Which rows are also kept as they are."""
    page: PageColumns | None = None
    """What is summed up for the data's page, of rows with ALIKE, if no pass before has done so."""

    @property
    def columns(self) -> tuple[TensorColumn, ...]:
        return tensor_columns(self.encoders)

    def split_index(self, number: int) -> int:
        """The index of the split of a part."""
        return next(split for split, numbers in self.parts.items() if number in numbers)

    def page_summary(self, number: int) -> PageSummary | None:
        """An empty summary of the rows of a part, if one is wanted."""
        return self.page.summary(len(self.parts[self.split_index(number)])) if self.page else None

    def new_file(self, folder: str, number: int) -> str:
        """A file for a part, below the folder of the attempt with this name."""
        split = self.split_index(number)
        part = number - self.parts[split].start
        return self.attempt.new_file(f"{folder}-{self.attempt.name}/split={SPLITS[split]}", f"part-{part:05}")


def bytes_per_split(rows: DataFrame, counts: dict[int, int], encoders: dict[str, FittedEncoder]) -> dict[int, int]:
    """Encoded bytes of each split's rows, by the split's index; an upper bound for documents, since a token has at least one
    byte of text. `counts` are the rows."""
    columns = tensor_columns(encoders)
    if Encoders(encoders).packer is None:
        return {split: count * sum(column.row_bytes for column in columns) for split, count in counts.items()}
    (document_encoder,) = encoders.values()
    text = F.sum(F.coalesce(F.octet_length(exact_column(document_encoder.inputs[0])), F.lit(0)) + 1).alias("bytes")
    text_bytes = {row[SPLIT]: row["bytes"] for row in accepted_rows(rows).groupBy(SPLIT).agg(text).collect()}
    return {split: text_bytes.get(split, 0) * np.dtype(document_encoder.column.dtype).itemsize for split in counts}


def part_numbers(split_bytes: dict[int, int], part_bytes: int) -> dict[int, range]:
    """Numbers of each split's parts, over all splits, for parts of about `part_bytes`. They do not depend on the machine."""
    parts, start = {}, 0
    for split, size in split_bytes.items():
        parts[split] = range(start, start - (-size // part_bytes))
        start = parts[split].stop
    return parts


def increment_part_bytes(split_bytes: dict[int, int], row_group_bytes: int, part_bytes: int) -> int:
    """The size of an increment's parts. One part would be the work of one task, while a night's rows are few: they are divided among
    TASKS_OF_INCREMENT, but no part gets less than a row group has."""
    return min(part_bytes, max(row_group_bytes, max(split_bytes.values(), default=0) // TASKS_OF_INCREMENT))


def write_parts(rows: DataFrame, job: WritingJob) -> Report:
    """Write every split's parts. Raises DatasetError if a file cannot be written."""
    count = sum(map(len, job.parts.values()))
    placed = assign_part(rows, job.parts).drop(SPLIT)
    moved = placed.drop(*({ROW, CONTENT, NEWEST} - {*job.keys, *([ROW] if job.page else [])})).repartitionById(count, PART)
    return merge_reports(moved.mapInArrow(partial(_write_part, job), REPORT_SCHEMA).toArrow())


@dataclass
class _PartRows:
    """The accepted rows of a part in the order of their arrival, in pieces along the rows."""

    columns: dict[str, list[np.ndarray]]
    """Encoded values by column, shape (rows, *column.shape); of a packed column, its documents."""
    places: list[np.ndarray] = field(default_factory=list)
    keys: list[pa.Table] = field(default_factory=list)
    raw: list[pa.Table] = field(default_factory=list)


def _write_part(job: WritingJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    encoders, report, page = Encoders(job.encoders), Report(), None
    number, part = -1, _PartRows({column.name: [] for column in job.columns})
    with Quarantine(job.attempt, report, job.allowed) as quarantine:
        for batch in batches:
            number = batch.column(PART)[0].as_py()
            accepted = quarantine.set_aside(batch, batch.column(REASON))
            if not len(accepted):
                continue
            encoded, reasons = encoders.encode(pa.Table.from_batches([accepted]))
            encoded_rows = quarantine.set_aside(accepted, reasons, refusal_kind)
            report.accepted += len(encoded_rows)
            # Copies: a view would keep the whole raw batch in memory.
            part.places.append(encoded_rows.column(PLACE).to_numpy().view(np.uint64).copy())
            page = page or job.page_summary(number)
            if page:
                page.add(encoded_rows, np.full(len(encoded_rows), job.split_index(number)))
            _keep_side_rows(job, number, part, encoded_rows)
            for column in job.columns:
                for chunk in encoded.column(column.name).chunks:
                    part.columns[column.name] += _documents(chunk) if encoders.packer else [to_numpy(column, chunk).copy()]
    if report.accepted and report.refused.total() <= job.allowed:
        for column in encoders.counted if job.split_index(number) == TRAIN else ():
            report.count_classes(column.name, _count_values(part.columns[column.name], column.cardinality or 0))
        (_write_documents if encoders.packer else _write_sorted)(job, number, report, part)
    if page:
        report.page.append(page.summaries())
    yield report.to_batch()


def _keep_side_rows(job: WritingJob, number: int, part: _PartRows, rows: pa.RecordBatch) -> None:
    """Keep what stands in the files beside the part."""
    if job.keys:
        part.keys.append(key_table(*(rows.column(name).to_numpy().copy() for name in job.keys)))
    if job.split_index(number) in job.raw_rows.splits:
        part.raw.append(job.raw_rows.select(rows))


def _write_documents(job: WritingJob, number: int, report: Report, part: _PartRows) -> None:
    """Write a part of windows that its documents are cut into."""
    packer, (name, documents) = Encoders(job.encoders).packer, *part.columns.items()
    assert packer is not None, "only a packed column has documents"
    report.add_rows(SPLITS[job.split_index(number)], sum_document_hashes(documents))
    report.expected_rows = packer.window_count(report.accepted, sum(map(len, documents)))
    windows = packer.windows([documents[row] for row in document_order(np.concatenate(part.places), documents)])
    # In a random order, the same one each time; frees those in the order of documents.
    windows = windows[np.argsort(philox.random_words(len(windows), key=len(windows)), kind="stable")]
    _write_rows(job, number, report, {name: windows})


def _write_sorted(job: WritingJob, number: int, report: Report, part: _PartRows) -> None:
    """Write a part's rows, and beside it the hashes of their keys and the raw rows, in one order."""
    report.expected_rows = report.accepted
    values, order = sort_rows(np.concatenate(part.places), part.columns)
    report.add_rows(SPLITS[job.split_index(number)], sum_row_hashes(job.columns, values))
    file = _write_rows(job, number, report, values)
    filesystem, root = job.attempt.filesystem, job.attempt.root
    for prefix, pieces, write in ((KEYS, part.keys, write_keys), (RAW_ROWS, part.raw, write_raw_rows)):
        if pieces:
            report.side_files.append(side_file(file, prefix))
            path = f"{root}/{report.side_files[-1]}"
            with storage.store_errors(path):
                storage.make_folder(filesystem, path.rpartition("/")[0])
                write(filesystem, path, pa.concat_tables(pieces).take(pa.array(order)))


def _count_values(pieces: list[np.ndarray], classes: int) -> list[int]:
    """How often each class stands in the values: row by row, since bincount takes eight bytes for each value."""
    counts = sum(np.bincount(values.ravel(), minlength=classes) for piece in pieces for values in piece)
    return list(np.asarray(counts).tolist())


def _documents(lists: pa.ListArray) -> list[np.ndarray]:
    values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
    return [values[start:stop].copy() for start, stop in pairwise(offsets.tolist())]


def _write_rows(job: WritingJob, number: int, report: Report, values: dict[str, np.ndarray]) -> str:
    """Write the rows of a part, and return its file, relative to the version."""
    arrays = [from_numpy(column, values.pop(column.name)) for column in job.columns]
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(job.columns))
    split, file, attempt = job.split_index(number), job.new_file("data", number), job.attempt
    part = number - job.parts[split].start
    with storage.store_errors(f"{attempt.root}/{file}"):
        report.row_groups = write_part(attempt.filesystem, attempt.root, file, SPLITS[split], part, job.columns, table, job.row_group_bytes)
    return file
