"""Sums rows up for the data's page: a sample of each split, a sample of contents, and the values of columns with few.

The pass that fits encoders sums it up. An increment keeps its parent's encoders and has no such pass: there, the tasks that write rows do.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import needs
from pipelines.data.features.raw import is_category, is_text
from pipelines.data.features.statistics import Statistics
from pipelines.etl.splits.split_assignment import ALIKE, ROW, raw_schema
from pipelines.etl.statistics import leakage, row_sample, value_counts

VALUES = "__values"
"""The name of the summary of `value_counts`, which is of all columns. That of the sample is ROW, and that of the contents ALIKE."""
COMBINERS: dict[str, Callable[[Any, Any], Any]] = {
    ROW: row_sample.merge_samples,
    ALIKE: leakage.combine_contents,
    VALUES: value_counts.combine_counts,
}
"""Each merges the summaries of two partitions, by name."""


class PageSummary:
    """Sums up the rows of one partition."""

    def __init__(
        self, columns: Sequence[str], hashed_columns: Sequence[str], has_key: bool, counted_elsewhere: Collection[str] = (), parts: int = 1
    ) -> None:
        """`hashed_columns` are those that `leakage` hashes in Python, and `counted_elsewhere` those whose values in train are counted by
        others. `parts` is the number of partitions among which the rows of a split are divided at random: each samples its share."""
        most = row_sample.rows_per_split(len(columns))
        share = max(row_sample.LEAST_ROWS, 2 * most // parts)
        self._columns, self._hashed_columns = columns, hashed_columns
        self._sample = row_sample.RowSample(has_key, min(most, share))
        self._contents = leakage.ContentSample()
        self._values = value_counts.ValueCounter(columns, counted_elsewhere)

    def add(self, batch: pa.RecordBatch, split: np.ndarray) -> None:
        """Add a batch with ROW, ALIKE and the raw columns, and the index of each row's split."""
        raw = {column: batch.column(column) for column in self._columns}
        self._sample.add(raw, split, batch.column(ROW).to_numpy().view(np.uint64))
        alike = batch.column(ALIKE).to_numpy().view(np.uint64)
        self._contents.add(leakage.likeness(alike, [raw[column] for column in self._hashed_columns]), split)
        self._values.add(raw, split)

    def summaries(self) -> dict[str, Any]:
        """By name, for JSON."""
        return {ROW: self._sample.summary(), ALIKE: self._contents.summary(), VALUES: self._values.summary()}


@dataclass(frozen=True)
class PageColumns:
    """The columns that the tasks that write an increment's rows sum up."""

    columns: tuple[str, ...]
    hashed_columns: tuple[str, ...]
    has_key: bool

    def summary(self, parts: int) -> PageSummary:
        return PageSummary(self.columns, self.hashed_columns, self.has_key, parts=parts)


def add_likeness(rows: DataFrame, dataset: Dataset) -> tuple[DataFrame, PageColumns]:
    """The rows with ALIKE, and the columns to sum up."""
    column_needs, schema = needs(dataset), raw_schema(rows)
    hash_of_others, hashed_columns = hash_features(rows, dataset, schema, column_needs)
    return rows.selectExpr("*", f"{hash_of_others} AS {ALIKE}"), PageColumns(tuple(column_needs), tuple(hashed_columns), bool(dataset.key))


def hash_features(
    rows: DataFrame, dataset: Dataset, schema: pa.Schema, column_needs: Mapping[str, frozenset[str]]
) -> tuple[str, list[str]]:
    """The columns of features that `leakage` hashes in Python, and SQL of a hash of all others."""
    is_hashed_here = {column: is_unchanged(schema.field(column).type, column_needs[column]) for column in leakage.feature_columns(dataset)}
    others = [column for column, is_here in is_hashed_here.items() if not is_here]
    return leakage.spark_hash_sql(rows, others), [column for column, is_here in is_hashed_here.items() if is_here]


def is_unchanged(kind: pa.DataType, needed: frozenset[str]) -> bool:
    """Whether the pass reads all of a value: of a number, or of a category that a statistic needs."""
    return is_category(kind) and (bool(needed) or not is_text(kind))


def page_fields(summaries: Mapping[str, Any], train: Mapping[str, Statistics] | None = None) -> dict[str, Any]:
    """The fields of a RowSummary that the page shows. `train` has the statistics of columns whose train values were counted elsewhere."""
    contents = {"contents": leakage.content_rows(summaries[ALIKE])} if ALIKE in summaries else {}
    values = value_counts.value_counts(summaries.get(VALUES, {}), train or {})
    return {"samples": row_sample.rows_by_split(summaries.get(ROW, "")), "values": values, **contents}


def merge_page_summaries(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summaries of all partitions together; none if there are none."""
    return {name: reduce(combine, [piece[name] for piece in pieces]) for name, combine in COMBINERS.items()} if pieces else {}
