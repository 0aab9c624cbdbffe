"""Statistics of one partition, in a task of Spark: an `Accumulator` per column, and the rows of each split and of each reason counted."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.features.base import COUNTED, COUNTS
from pipelines.data.features.raw import missing_values
from pipelines.data.features.statistics import Accumulator
from pipelines.data.features.text.ngrams import term_rule
from pipelines.data.features.text.utf8 import null_invalid
from pipelines.data.versions.manifest import SPLITS
from pipelines.etl.quality import REASON
from pipelines.etl.splits.splits import ALIKE, ROW, SPLIT, TRAIN
from pipelines.etl.statistics import leakage, row_sample, value_counts
from pipelines.etl.statistics.key_hashes import KeyHashes
from pipelines.etl.statistics.summaries import MISSING, VALUES, count_batch, hash_batch, summary_batch

Needs = dict[str, frozenset[str]]

# A task returns its counts and hashes after this many rows or counts of terms, which bounds the distinct values that it holds.
_ROWS_BETWEEN_DRAINS = 4_000_000
_TERMS_BETWEEN_DRAINS = 2_000_000


def summarize_partition(
    column_needs: Needs, hashed_columns: list[str], missing_in: list[str], has_key: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A partition's counts, summaries and hashes of keys, as rows of GATHERED. `leakage` hashes `hashed_columns`."""
    accumulators = {column: Accumulator(needed) for column, needed in column_needs.items()}
    rows_counted = dict.fromkeys([SPLIT, REASON, ROW, ALIKE, VALUES, MISSING, *column_needs], 0)
    rows_by_split = np.zeros(len(SPLITS), np.int64)
    refused: Counter[str] = Counter()
    sample = row_sample.RowSample(has_key, row_sample.rows_per_split(len(column_needs)))
    contents, keys = leakage.ContentSample(), KeyHashes()
    values = value_counts.ValueCounter(column_needs, {column for column, needed in column_needs.items() if COUNTS in needed})
    rows_since_drain, missing = 0, np.zeros(len(missing_in), np.int64)
    for batch in _drop_refused(batches, refused):
        split, row = batch.column(SPLIT).to_numpy(), batch.column(ROW).to_numpy().view(np.uint64)
        raw = {column: batch.column(column) for column in column_needs}
        sample.add(raw, split, row)
        contents.add(leakage.likeness(batch.column(ALIKE).to_numpy().view(np.uint64), [raw[column] for column in hashed_columns]), split)
        values.add(raw, split)
        missing += np.array([missing_values(raw[column]) for column in missing_in], np.int64)
        if has_key:
            keys.add(row)
        rows_by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        rows_since_drain += len(batch)
        if rows_since_drain >= _ROWS_BETWEEN_DRAINS or sum(one.terms_held for one in accumulators.values()) >= _TERMS_BETWEEN_DRAINS:
            yield from _drain_counts(accumulators, column_needs, rows_counted)
            yield from map(hash_batch, keys.drain().to_batches())
            rows_since_drain = 0
    yield from _drain_counts(accumulators, column_needs, rows_counted)
    yield from map(hash_batch, keys.drain().to_batches())
    summaries: dict[str, Any] = {column: accumulator.summary() for column, accumulator in accumulators.items()}
    summaries |= {SPLIT: rows_by_split.tolist(), REASON: refused, MISSING: missing.tolist()}
    summaries |= {ROW: sample.summary(), ALIKE: contents.summary(), VALUES: values.summary()}
    yield summary_batch(summaries, rows_counted)


def _drop_refused(batches: Iterator[pa.RecordBatch], refused: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Count refused rows by reason, and leave them out of the batches. Texts that are not UTF-8 are NULL, since encoders refuse them."""
    for batch in batches:
        reasons = batch.column(REASON)
        refused.update(reasons.drop_null().to_pylist())
        accepted = batch.filter(reasons.is_null()) if reasons.null_count < len(batch) else batch
        yield pa.RecordBatch.from_arrays([null_invalid(values) for values in accepted.columns], schema=accepted.schema)


def _drain_counts(accumulators: dict[str, Accumulator], column_needs: Needs, rows_counted: dict[str, int]) -> Iterator[pa.RecordBatch]:
    for column, accumulator in accumulators.items():
        for need in count_statistics(column_needs[column]):
            for batch in accumulator.drain(need if term_rule(need) else "").to_batches():
                rows_counted[column] += len(batch)
                yield count_batch(count_name(column, need), batch)


def count_statistics(needed: frozenset[str]) -> list[str]:
    """The statistics that are counts."""
    return sorted(need for need in needed if need in COUNTED or term_rule(need))


def count_name(column: str, need: str) -> str:
    """The name under which a column's counts are gathered: the column's, or for terms one that no column has."""
    return f"{need}\n{column}" if term_rule(need) else column
