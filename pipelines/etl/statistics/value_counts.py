"""Counts the values of categories in every split, for the data's page, in the pass that fits the encoders.

The encoders' own counts are of the training split, and of every value. These are of all splits, and only of columns with few values:
a column with more is given up at the first batch that shows it, so that it costs nothing from there on.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.raw import categories, is_text
from pipelines.data.features.statistics import Statistics
from pipelines.data.versions.data_profile import TEXT_LENGTH, ValueCounts
from pipelines.data.versions.manifest import SPLITS

MOST_VALUES, MOST_INTEGERS = 256, 16
"""Values of a text and of an integer that are counted; an integer with more is drawn as a number."""
MOST_COLUMNS = 400
"""Columns that are counted, as many as the page shows: a bound for the size of the summaries."""
_ROWS_COUNTED_AT_ONCE = 100_000
_SPAN = 16
"""Between the least and the greatest integer of a batch, up to which all between are counted."""
_MISSING = ""
"""The key of missing values, since JSON has no NULL for one; that of a value begins with "="."""

Rows = dict[str, list[int]]
"""Rows of each split, by key."""
Counted = dict[str, Rows | None]
"""By column; None for one with too many values."""


def countable(kind: pa.DataType) -> bool:
    """Whether a column of this type may be a category."""
    return types.is_boolean(kind) or types.is_integer(kind) or is_text(kind)


class ValueCounter:
    """Counts the values of one partition."""

    def __init__(self, columns: Iterable[str], train_elsewhere: Iterable[str] = ()) -> None:
        """`train_elsewhere` are columns whose values in train are counted by others. Of very many columns the first ones are counted,
        and the last ones, among which the targets are."""
        names = list(columns)
        chosen = names if len(names) <= MOST_COLUMNS else [*names[: MOST_COLUMNS // 2], *names[-MOST_COLUMNS // 2 :]]
        self._counts: Counted = {name: {} for name in chosen}
        self._open_columns = list(chosen)
        """Columns that are still counted."""
        self._train_elsewhere = frozenset(train_elsewhere)
        self._pending: list[tuple[Mapping[str, pa.Array], np.ndarray]] = []
        self._is_first = True

    def add(self, columns: Mapping[str, pa.Array], split: np.ndarray) -> None:
        """Add a batch: raw columns, and the index of each row's split."""
        if not self._open_columns:
            return
        if self._is_first and not all(countable(columns[name].type) for name in self._open_columns):
            self._counts |= {name: None for name in self._open_columns if not countable(columns[name].type)}
            self._close_columns()
        self._pending.append(({name: columns[name] for name in self._open_columns}, split))
        # The first batch gives up most columns at once.
        if self._is_first or sum(len(splits) for _, splits in self._pending) >= _ROWS_COUNTED_AT_ONCE:
            self._count()
            self._is_first = False

    def summary(self) -> Counted:
        self._count()
        return self._counts

    def _count(self) -> None:
        if not self._pending:
            return
        split = np.concatenate([splits for _, splits in self._pending])
        elsewhere = np.flatnonzero(split != 0) if self._train_elsewhere else split
        for name in self._open_columns:
            rows_by_key, values = self._counts[name], pa.chunked_array([columns[name] for columns, _ in self._pending])
            assert rows_by_key is not None, "the column is open"
            if name in self._train_elsewhere:
                self._counts[name] = _add_rows(rows_by_key, values.take(pa.array(elsewhere)), split[elsewhere])
            else:
                self._counts[name] = _add_rows(rows_by_key, values, split)
        self._pending = []
        self._close_columns()

    def _close_columns(self) -> None:
        self._open_columns = [name for name in self._open_columns if self._counts[name] is not None]


def combine_counts(first: Counted, second: Counted) -> Counted:
    sums: Counted = {}
    for name, first_rows in first.items():
        second_rows = second[name]
        sums[name] = None if first_rows is None or second_rows is None else _sum_rows(first_rows, second_rows.items())
    return sums


def value_counts(counted: Counted, train: Mapping[str, Statistics]) -> dict[str, ValueCounts]:
    """For the page, the columns that were counted, their values by rows of train. `train` has the statistics of the columns whose
    values in train were counted elsewhere."""
    counts_for_page = {}
    for name, by_key in counted.items():
        rows_by_key = by_key
        if by_key is not None and name in train:
            table, nulls = train[name].counts, train[name].nulls
            if table is None or len(table) > MOST_VALUES:
                continue
            pairs = zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True)
            rows_of_train = [(_key(value), [count, 0, 0]) for value, count in pairs]
            rows_by_key = _sum_rows(by_key, [*rows_of_train, (_MISSING, [nulls, 0, 0])])
        if rows_by_key is None:
            continue
        missing = rows_by_key.get(_MISSING, [0] * len(SPLITS))
        in_order = sorted(((key, rows) for key, rows in rows_by_key.items() if key != _MISSING), key=lambda pair: (-pair[1][0], pair[0]))
        rows = np.array([counts for _, counts in in_order], np.int64).reshape(-1, len(SPLITS))
        counts_for_page[name] = ValueCounts(tuple(key[1:] for key, _ in in_order), rows, np.array(missing, np.int64))
    return counts_for_page


def _add_rows(rows_by_key: Rows, values: pa.ChunkedArray, split: np.ndarray) -> Rows | None:
    """The counts with the rows of more batches; None if there are too many values."""
    most = MOST_INTEGERS if types.is_integer(values.type) else MOST_VALUES
    distinct, codes = _codes(values)
    if len(distinct) > most:
        return None
    size = len(distinct) + 1
    counts = np.bincount(codes * len(SPLITS) + split, minlength=size * len(SPLITS)).reshape(size, len(SPLITS))
    return _sum_rows(rows_by_key, zip([*map(_key, categories(distinct).to_pylist()), _MISSING], counts.tolist(), strict=True), most)


def _codes(values: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct values, and for each row the place of its value among them, or their number for NULL: int64."""
    if types.is_integer(values.type) and not values.null_count and len(values):
        numbers = values.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _SPAN:  # without a table of hashes this takes a third of the time
            return pa.array(range(low, high + 1), values.type), (numbers - numbers.dtype.type(low)).astype(np.int64)
    values_of_column = values.combine_chunks()
    if types.is_boolean(values_of_column.type):
        return pa.array([False, True]), values_of_column.cast(pa.int8()).fill_null(2).to_numpy().astype(np.int64)
    encoded = values_of_column if types.is_dictionary(values_of_column.type) else values_of_column.dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)


def _sum_rows(rows_by_key: Rows, more_rows: Iterable[tuple[str, list[int]]], most: int = MOST_VALUES) -> Rows | None:
    """The sums of both, by key; None if there are too many values."""
    sums = dict(rows_by_key)
    for key, rows in more_rows:
        if key in sums:
            sums[key] = [first + second for first, second in zip(sums[key], rows, strict=True)]
        elif any(rows):
            sums[key] = rows
    return sums if len(sums) - (_MISSING in sums) <= most else None


def _key(value: str | None) -> str:
    return _MISSING if value is None else f"={value[:TEXT_LENGTH]}"
