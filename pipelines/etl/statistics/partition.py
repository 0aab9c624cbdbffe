"""Statistics of one partition, in a task of Spark: an `Accumulator` per column, and the rows of each split and of each reason counted.

1. `summarize_partition` gives summaries of the partition as JSON in rows of GATHERED, which are made one for each column.
2. `KeyHashes` collects the hashes of a partition's keys, and drains them in buckets by their highest bits: a value of Spark's for thousands
   of rows, since a shuffle of single hashes takes longer than all that is computed of them.
3. `has_repeated_key` finds whether a key repeats: equal keys have equal hashes. It brings each bucket to one task, which sorts it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipelines.data.features.base import COUNTED, COUNTS
from pipelines.data.features.raw import missing_values, null_invalid
from pipelines.data.features.statistics import Accumulator, combine_summaries
from pipelines.data.features.text_pieces import term_rule
from pipelines.data.versions.manifest import SPLITS
from pipelines.etl.refusals import REASON
from pipelines.etl.splits.split_assignment import ALIKE, ROW, SPLIT, TRAIN
from pipelines.etl.statistics.page_summary import COMBINERS, VALUES, PageSummary

Needs = dict[str, frozenset[str]]

# Tasks return the count of a value, a column's summary as JSON with the number of its counts, or the hashes of a bucket of keys.
GATHERED = "column string, value string, count bigint, summary string, hashes binary"
_NAMES = ["column", "value", "count", "summary", "hashes"]
MISSING = "__missing"
"""The name of the NULL and NaN by column."""
# A task returns its counts and hashes after this many rows or counts of terms, which bounds the distinct values that it holds.
_ROWS_BETWEEN_DRAINS = 4_000_000
_TERMS_BETWEEN_DRAINS = 2_000_000
BUCKETS = 256
_BUCKET_BITS = 8
_ROWS_PER_TASK = 4_000_000


def summarize_partition(
    column_needs: Needs, hashed_columns: list[str], missing_in: list[str], has_key: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A partition's counts, summaries and hashes of keys, as rows of GATHERED. `leakage` hashes `hashed_columns`."""
    accumulators = {column: Accumulator(needed) for column, needed in column_needs.items()}
    rows_counted = dict.fromkeys([SPLIT, REASON, ROW, ALIKE, VALUES, MISSING, *column_needs], 0)
    rows_by_split = np.zeros(len(SPLITS), np.int64)
    refused: Counter[str] = Counter()
    counted = {column for column, needed in column_needs.items() if COUNTS in needed}
    page, keys = PageSummary(list(column_needs), hashed_columns, has_key, counted), KeyHashes()
    rows_since_drain, missing = 0, np.zeros(len(missing_in), np.int64)
    for batch in _drop_refused(batches, refused):
        split, row = batch.column(SPLIT).to_numpy(), batch.column(ROW).to_numpy().view(np.uint64)
        page.add(batch, split)
        missing += np.array([missing_values(batch.column(column)) for column in missing_in], np.int64)
        if has_key:
            keys.add(row)
        rows_by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        rows_since_drain += len(batch)
        if rows_since_drain >= _ROWS_BETWEEN_DRAINS or sum(one.terms_held for one in accumulators.values()) >= _TERMS_BETWEEN_DRAINS:
            yield from _drain(accumulators, keys, column_needs, rows_counted)
            rows_since_drain = 0
    yield from _drain(accumulators, keys, column_needs, rows_counted)
    summaries: dict[str, Any] = {column: accumulator.summary() for column, accumulator in accumulators.items()}
    summaries |= {SPLIT: rows_by_split.tolist(), REASON: refused, MISSING: missing.tolist(), **page.summaries()}
    yield summary_batch(summaries, rows_counted)


def _drop_refused(batches: Iterator[pa.RecordBatch], refused: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Count refused rows by reason, and leave them out of the batches. Texts that are not UTF-8 are NULL, since encoders refuse them."""
    for batch in batches:
        reasons = batch.column(REASON)
        refused.update(reasons.drop_null().to_pylist())
        accepted = batch.filter(reasons.is_null()) if reasons.null_count < len(batch) else batch
        yield pa.RecordBatch.from_arrays([null_invalid(values) for values in accepted.columns], schema=accepted.schema)


def _drain(
    accumulators: dict[str, Accumulator], keys: "KeyHashes", column_needs: Needs, rows_counted: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    """The counts of values, and the hashes of keys, since the last call."""
    for column, accumulator in accumulators.items():
        for need in count_statistics(column_needs[column]):
            for counts in accumulator.drain(need if term_rule(need) else "").to_batches():
                rows_counted[column] += len(counts)
                names = pa.repeat(count_name(column, need), len(counts))
                yield _rows(names, value=counts["value"], count=counts["count"])
    for drained in keys.drain().to_batches():
        yield _rows(drained["bucket"], hashes=drained["hashes"])


def count_statistics(needed: frozenset[str]) -> list[str]:
    """The statistics that are counts."""
    return sorted(need for need in needed if need in COUNTED or term_rule(need))


def count_name(column: str, need: str) -> str:
    """The name under which a column's counts are gathered: the column's, or for terms one that no column has."""
    return f"{need}\n{column}" if term_rule(need) else column


def summary_batch(summaries: dict[str, Any], counted: dict[str, int]) -> pa.RecordBatch:
    texts = [json.dumps(summary) for summary in summaries.values()]
    return _rows(pa.array(summaries), count=pa.array([counted[column] for column in summaries]), summary=pa.array(texts))


def _rows(columns: pa.Array, **arrays_by_name: pa.Array) -> pa.RecordBatch:
    kinds = {"value": pa.string(), "count": pa.int64(), "summary": pa.string(), "hashes": pa.binary()}
    arrays = [arrays_by_name[name] if name in arrays_by_name else pa.nulls(len(columns), kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays([columns, *arrays], names=_NAMES)


def _combine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the partitions' summaries of each column. A sample takes 2 MB, so they are merged one by one."""
    summaries: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        for column, count, text in zip(*(batch.column(name) for name in ("column", "count", "summary")), strict=True):
            name, summary = column.as_py(), json.loads(text.as_py())
            if name in summaries:
                summary = _combine_pair(name, summaries[name], summary)
            summaries[name], counts[name] = summary, counts.get(name, 0) + count.as_py()
    if summaries:
        yield summary_batch(summaries, counts)


def _combine_pair(name: str, first: Any, second: Any) -> Any:
    if name in COMBINERS:
        return COMBINERS[name](first, second)
    if name in (SPLIT, MISSING):
        return np.add(first, second).tolist()
    return Counter(first) + Counter(second) if name == REASON else combine_summaries([first, second])


def merge_summaries(results: pa.Table) -> dict[str, Any]:
    """Summaries by column, of few rows of GATHERED."""
    rows = results.filter(pc.is_valid(results["summary"]))
    return {row["column"]: json.loads(row["summary"]) for batch in _combine(iter(rows.to_batches())) for row in batch.to_pylist()}


def collect_summaries(gathered: DataFrame) -> tuple[dict[str, Any], int]:
    """Summaries by column, and the number of counts of all columns."""
    by_column = gathered.where("summary IS NOT NULL").repartition(gathered.sparkSession.sparkContext.defaultParallelism, "column")
    rows = by_column.mapInArrow(_combine, GATHERED).select("column", "summary", "count").collect()
    return {row.column: json.loads(row.summary) for row in rows}, sum(row["count"] for row in rows)


class KeyHashes:
    """The hashes of the rows of one partition since the last call of `drain`."""

    def __init__(self) -> None:
        self._pending: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> None:
        """Add a batch, uint64 of shape (rows,)."""
        self._pending.append(hashes.copy())  # a view would keep the whole batch in memory

    def drain(self) -> pa.Table:
        """(bucket, hashes): the little-endian bytes of the hashes of each bucket, without empty buckets."""
        hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *self._pending])).astype("<u8")
        self._pending = []
        edges = np.searchsorted(hashes >> np.uint64(64 - _BUCKET_BITS), np.arange(BUCKETS + 1))
        filled = np.flatnonzero(np.diff(edges))
        blobs = [hashes[edges[bucket] : edges[bucket + 1]].tobytes() for bucket in filled]
        return pa.table({"bucket": pa.array(map(str, filled), pa.string()), "hashes": pa.array(blobs, pa.binary())})


def has_repeated_key(drained: DataFrame, rows: int) -> bool:
    """Whether a hash is there twice. `drained` are (bucket, hashes) of all partitions, with about this number of rows."""
    tasks = max(drained.sparkSession.sparkContext.defaultParallelism, rows // _ROWS_PER_TASK)
    buckets = drained.repartition(tasks, "bucket").mapInArrow(_search_buckets, "is_repeated boolean").collect()
    return any(row.is_repeated for row in buckets)


def _search_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"is_repeated": [repeats_in_bucket(batches)]})


def repeats_in_bucket(batches: Iterable[pa.RecordBatch]) -> bool:
    """Whether a bucket of these (bucket, hashes) has a hash twice."""
    by_bucket: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for bucket, hashes in zip(batch.column("bucket").to_pylist(), batch.column("hashes").to_pylist(), strict=True):
            by_bucket.setdefault(bucket, []).append(np.frombuffer(hashes, "<u8"))
    return any(map(has_repeats, by_bucket.values()))


def has_repeats(pieces: list[np.ndarray]) -> bool:
    """Whether a value is in these arrays twice."""
    values = np.sort(np.concatenate(pieces))
    return bool((values[1:] == values[:-1]).any())
