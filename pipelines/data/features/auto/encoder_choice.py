"""The encoders of a column, each with its reason. `lockstep init` and `auto` share these rules."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.data.features.auto.column_facts import ColumnFacts, has_sentences, is_array

MOST_VALUED_COLUMNS = 100
"""Columns of a table beyond which numbers have no values besides: an embedding of each would outgrow the network."""
MOST_QUANTILE_COLUMNS = 300
"""Columns of a table beyond which no encoder needs quantiles: for them the driver holds up to 100,000 numbers of each column."""
_LONG_TAIL = 6.0
_MANY_ZEROS = 0.2
_ONE_VALUE = 0.9
_FEW_VALUES = 10
_RARE_VALUES = 100
"""Distinct values beyond which rare ones are encoded alike."""
_MOST_VALUES = 1_000_000
_LATITUDE, _LONGITUDE = re.compile(r"^(.*_)?lat(itude)?$", re.I), re.compile(r"^(.*_)?(lon|lng|long|longitude)$", re.I)


@dataclass(frozen=True)
class NumberStyle:
    """Encoders of all numbers of a table."""

    has_values: bool
    """The frequent values of a number that nearly always has one value, besides it."""
    is_normal: bool
    """The quantile of a value instead of its distance from the mean, except where only few values occur."""
    has_quantiles: bool
    """Whether encoders and imputation may need quantiles; without them a long tail is log1p, and the mean is imputed."""
    is_linear: bool = False
    """Whether a linear model takes the numbers: all keep their distances."""


def number_style(columns: int, has_classes: bool, is_split_by_time: bool) -> NumberStyle:
    """The style of a table with this number of features, and with classes or a number to predict.

    Bins besides a number add nothing to its quantile: on the rows of conf/adult.yaml, AUC is 0.928 without bins. On rows in order of time,
    later values may be beyond all quantiles."""
    has_quantiles = columns <= MOST_QUANTILE_COLUMNS
    return NumberStyle(has_classes and columns <= MOST_VALUED_COLUMNS, has_quantiles and not is_split_by_time, has_quantiles)


@dataclass(frozen=True)
class Encoding:
    """A feature: its name, its encoder as in a config, and why."""

    feature: str
    encoder: Any
    reason: str
    sql: str = ""
    """What the query makes of the column first, with {} for its name; empty if it is used as it is."""

    @property
    def encoder_name(self) -> str:
        return str(self.encoder if isinstance(self.encoder, str) else self.encoder["encoder"])


def encodings(column: ColumnFacts, style: NumberStyle, used_names: set[str]) -> Iterator[Encoding]:
    """The features of a column. `used_names` are the names in use, to which those of more features of the column are added."""
    if column.kind == "number":
        yield from _number(column, style, used_names)
    elif column.kind == "boolean":
        yield Encoding(column.name, "vocabulary" if column.nulls else "binary", f"true and false{_nulls(column)}")
    elif column.kind == "list" and is_array(column):
        length = len(column.filled[0])
        yield Encoding(column.name, {"encoder": "identity", "shape": [length]}, f"arrays of {length} numbers")
    elif column.kind == "list":
        lengths = sorted(len(value) for value in column.filled.slice(0, 20_000))
        length = max(lengths[len(lengths) * 19 // 20], 1)
        sql = "coalesce({}, array())" if column.nulls else ""
        yield Encoding(column.name, {"encoder": "sequence", "length": min(length, 32)}, f"lists of up to {length} values", sql)
    elif has_sentences(column):
        length = max(8, min(column.most_words, 32))
        encoder = {"encoder": "sequence", "length": length, "min_count": 2}
        sql = "coalesce({}, '')" if column.nulls else ""
        yield Encoding(column.name, encoder, f"texts of {column.words:.0f} words on average: their first {length} words", sql)
    else:
        yield category(column)


def category(column: ColumnFacts) -> Encoding:
    """A vocabulary of the values, or hashes of very many."""
    encoder = category_encoder(column.distinct)
    kind = encoder if isinstance(encoder, str) else encoder["encoder"]
    rare = " of those that occur five times" if isinstance(encoder, dict) and kind == "vocabulary" else ""
    return Encoding(column.name, encoder, f"{show_count(column.distinct, 'distinct value')}{_nulls(column)}: {kind}{rare}")


def category_encoder(distinct: int) -> Any:
    if distinct >= _MOST_VALUES:
        return {"encoder": "hash", "buckets": _MOST_VALUES}
    return {"encoder": "vocabulary", "min_count": 5} if distinct > _RARE_VALUES else "vocabulary"


def member(column: ColumnFacts) -> Encoding:
    """A vocabulary of identifiers that repeat, however rare each is."""
    return Encoding(column.name, "vocabulary", f"{column.distinct:,} identifiers that repeat{_nulls(column)}: vocabulary")


def place_encoding(columns: Sequence[ColumnFacts], used_names: set[str]) -> Encoding | None:
    """A feature of latitude and longitude together, which a network does not divide into places by itself."""
    numbers = [column.name for column in columns if column.kind == "number" and not column.nulls]
    latitudes, longitudes = list(filter(_LATITUDE.match, numbers)), list(filter(_LONGITUDE.match, numbers))
    if len(latitudes) != 1 or len(longitudes) != 1:
        return None
    names = [*longitudes, *latitudes]
    encoder = {"encoder": "fourier", "columns": names, "frequencies": 64, "scale": 4}
    return Encoding(free_name("place", used_names), encoder, "longitude and latitude together, as waves over the map")


def _number(column: ColumnFacts, style: NumberStyle, used_names: set[str]) -> Iterator[Encoding]:
    impute = {"impute": "median" if style.has_quantiles else "mean"} if column.nulls else {}
    values, counts = column.counts
    zeros = float(counts[0] / len(column.filled)) if values[0] == 0 else 0.0
    facts = [f"{100 * zeros:.0f} % zeros"] * (zeros >= _MANY_ZEROS) + ["long tail"] * (column.tail > _LONG_TAIL)
    facts += [_nulls(column).removeprefix(", ")] * bool(column.nulls)
    tailed = column.tail > _LONG_TAIL and column.top_share < _ONE_VALUE
    is_normal = style.is_normal and column.top_share < 0.5 and column.distinct >= _FEW_VALUES
    name = (
        "standardize"
        if style.is_linear
        else "log1p"
        if tailed and (not style.has_quantiles or (zeros >= _MANY_ZEROS and column.numbers[0] >= 0))
        else "normal_quantile"
        if tailed or is_normal
        else "standardize"
    )
    has_values = style.has_values and column.distinct > 2 and column.top_share >= _ONE_VALUE
    also = " and its values" if has_values else ""
    reason = f"{', '.join(facts)}: {name}{also}" if facts else ""
    yield Encoding(column.name, {"encoder": name, **impute} if impute else name, reason)
    if has_values:
        encoder = {"encoder": "vocabulary", "column": column.name, "min_count": 5}
        yield Encoding(
            free_name(f"{column.name}_values", used_names), encoder, f"{100 * column.top_share:.0f} % of the rows have one value"
        )


def _nulls(column: ColumnFacts) -> str:
    if not column.nulls:
        return ""
    share = 100 * column.nulls / column.rows
    return f", {share:.0f} % missing" if share >= 1 else f", {column.nulls:,} missing"


def free_name(name: str, used_names: set[str]) -> str:
    """The name, or one like it that is not among the used ones, which are in lower case; it is used from now on."""
    while name.lower() in used_names:
        name += "_2"
    used_names.add(name.lower())
    return name
