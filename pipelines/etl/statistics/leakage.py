"""Finds rows of different splits whose features are alike, from the pass that fits the encoders.

1. `feature_columns` names the columns, and `spark_hash_sql` hashes those of a row that are not handed to Python as they are.
2. `likeness` hashes the others with it: texts in lower case and as words only, numbers rounded to float32. A text is normalized once
   for each batch that it is in.
3. `ContentSample` keeps the CONTENTS smallest hashes of a partition, with the rows of each split that have them. Equal contents have equal
   hashes, so of each content all rows are kept or none: shares of rows are estimated without bias from a bounded number of contents
   (bottom-k sketches: Cohen and Kaplan 2007).
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features.raw import categories, is_text, numbers
from pipelines.data.sources.spark_sql import quote_name
from pipelines.data.versions.manifest import SPLITS
from pipelines.etl.splits.split_assignment import hash_sql, hashable_sql
from pipelines.etl.statistics.row_sample import mix_bits

CONTENTS = 8_192
"""Contents that are kept. Of a split with a tenth of the rows, a share of 1 % has a standard error of 0.35 %."""
_ODD, _MISSING = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


def feature_columns(dataset: Dataset) -> list[str]:
    """The columns that the features are encoded from, without those of the key unless there are no others."""
    columns = dict.fromkeys(column for name, settings in dataset.features.items() for column in settings.inputs(name))
    return [column for column in columns if column not in dataset.key] or list(columns)


def spark_hash_sql(rows: DataFrame, names: Iterable[str]) -> str:
    """SQL of a hash of these columns; 0 if there are none."""
    kinds = {field.name: field.dataType for field in rows.schema}
    columns = [(quote_name(name), _normal_sql(quote_name(name), kinds[name])) for name in names]
    return hash_sql("alike", columns) if columns else "0L"


def likeness(hashes: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
    """A hash of each row of a batch, uint64: of its hash by Spark and of its values in these columns, which are categories or numbers."""
    texts = iter(_text_hashes([column for column in columns if is_text(column.type)]))
    for column in columns:
        hashes = mix_bits(hashes * _ODD + (next(texts) if is_text(column.type) else _number_hashes(column)))
    return hashes


def _text_hashes(columns: Sequence[pa.Array]) -> list[np.ndarray]:
    """uint64, equal for equal texts. The distinct ones of all columns are normalized at once, since compiling the expression for it takes
    as long as hundreds of texts."""
    if not columns:
        return []
    encoded = [column.dictionary_encode() for column in columns]
    ends = np.cumsum([0, *(len(column.dictionary) for column in encoded)])
    words = _words(pa.concat_arrays([column.dictionary for column in encoded]))
    hashes = np.append(pd.util.hash_array(words.to_numpy(zero_copy_only=False), categorize=False), _MISSING)
    return [
        hashes[(pc.add(column.indices, start) if start else column.indices).fill_null(len(hashes) - 1).to_numpy()]
        for column, start in zip(encoded, ends[:-1].tolist(), strict=True)
    ]


def _number_hashes(values: pa.Array) -> np.ndarray:
    """uint64, equal for equal values; a NULL is as NaN. They need not be spread."""
    if types.is_floating(values.type):
        with np.errstate(over="ignore"):
            rounded = numbers(values).astype(np.float32)
        return np.where(np.isnan(rounded), _MISSING, rounded.view(np.uint32))
    if types.is_decimal(values.type):
        return _text_hashes([categories(values)])[0]
    without_dates = values.cast(pa.int32()) if types.is_date32(values.type) else values
    integers = without_dates.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _MISSING, integers) if values.null_count else integers


def _words(texts: pa.Array) -> pa.Array:
    """Each text in lower case, with a space between its words; as bytes, if one is not UTF-8."""
    try:
        return pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.utf8_lower(texts), r"[^\pL\pN]+", " "))
    except pa.ArrowInvalid:
        return texts.cast(pa.binary())


def _normal_sql(column: str, kind: DataType) -> str:
    if isinstance(kind, StringType):
        return rf"trim(regexp_replace(lower({column}), r'[^\p{{L}}\p{{N}}]+', ' '))"
    if isinstance(kind, FloatType | DoubleType):
        return f"try_cast({column} AS float) + CAST(0 AS float)"  # so that −0 is 0
    return hashable_sql(column, kind)


class ContentSample:
    """The smallest hashes of one partition's contents, with their rows by split."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)
        self._rows = np.empty((0, len(SPLITS)), np.int64)
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._limit = np.uint64(2**64 - 1)

    def add(self, hashes: np.ndarray, split: np.ndarray) -> None:
        """Add a batch of rows: uint64 hashes, and the index of each row's split."""
        small = hashes <= self._limit
        self._pending.append((hashes[small], split[small]))
        if sum(len(pending) for pending, _ in self._pending) > 4 * CONTENTS:
            self._reduce()

    def summary(self) -> list[str]:
        """Hashes and rows, in base64."""
        self._reduce()
        return _pack(self._hashes, self._rows)

    def _reduce(self) -> None:
        one_hot = np.eye(len(SPLITS), dtype=np.int64)
        hashes = np.concatenate([self._hashes, *(hashes for hashes, _ in self._pending)])
        rows = np.concatenate([self._rows, *(one_hot[split] for _, split in self._pending)])
        self._hashes, self._rows = _smallest(hashes, rows)
        self._pending = []
        if len(self._hashes) == CONTENTS:
            self._limit = self._hashes[-1]


def combine_contents(first: list[str], second: list[str]) -> list[str]:
    (hashes, rows), (second_hashes, second_rows) = _unpack(first), _unpack(second)
    return _pack(*_smallest(np.concatenate([hashes, second_hashes]), np.concatenate([rows, second_rows])))


def content_rows(summary: list[str]) -> np.ndarray:
    """Rows of each content, by split: int64 of shape (contents, splits)."""
    return _unpack(summary)[1]


def _smallest(hashes: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The CONTENTS smallest hashes, each once and in ascending order, with the sums of their rows."""
    distinct, places = np.unique(hashes, return_inverse=True)
    sums = np.zeros((len(distinct), len(SPLITS)), np.int64)
    np.add.at(sums, places, rows)
    return distinct[:CONTENTS], sums[:CONTENTS]


def _pack(hashes: np.ndarray, rows: np.ndarray) -> list[str]:
    return [b64encode(values.tobytes()).decode() for values in (hashes.astype("<u8"), rows.astype("<i8"))]


def _unpack(summary: list[str]) -> tuple[np.ndarray, np.ndarray]:
    hashes, rows = summary
    return np.frombuffer(b64decode(hashes), "<u8"), np.frombuffer(b64decode(rows), "<i8").reshape(-1, len(SPLITS))
