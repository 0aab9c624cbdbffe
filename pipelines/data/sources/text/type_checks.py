"""Defines numbers in raw text, for CSV and the names of folders: digits, with a sign, a point and an exponent. And finds the values of a
record that do not fit their columns.

Java's parsers take more, each its own: 12D, 0x1p4, ٣, and 1,234 for a decimal; and they take 1e400 for infinity. Infinity and NaN are
numbers only as the options `nanValue`, `positiveInf` and `negativeInf` of CSV write them. JSON has its own grammar, and Spark reads it.

Spark handles expressions by recursion, so a chain of some hundreds overflows Java's stack, and it compiles a test of each column for
minutes. So conditions on many columns are planned in seconds by making columns of one type an array, with one test of its elements."""

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegralType, StringType

_WHOLE = r"[+-]?[0-9]+"
_FRACTION = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Of texts that Spark casts: its whole numbers may have blanks around them, decimals digits of any script, and floats all that Java takes.
_NOT_WHOLE, _NOT_DECIMAL, _NOT_FLOAT = r"[^0-9+\-]", r"[^0-9+\-.eE]", r"[^0-9+\-.eE \t]"
_JAVAS = r"[0-9.](?:[dDfF](?:[^0-9A-Za-z]|$)|[xX])|[\x00-\x08\x0a-\x1f]"
"""In every record with a float that is one of Java's only, unless it is infinite or NaN. For RE2, as DIGITS."""
DIGITS = r"[^\P{Nd}0-9]|[\x{10000}-\x{1efff}]"
"""Digits of other scripts, and all characters where later versions of Unicode have more of them, since Java may be newer than RE2."""
_OPTIONS = {"nanvalue": "NaN", "positiveinf": "Infinity", "negativeinf": "-Infinity"}
Values = Mapping[str, tuple[Column, DataType]]
"""Values of a record by column, and the type of that column. Where types are equal, those of the values are."""
Test = Callable[[Column, DataType], Column]
"""Whether a value, which may be NULL, does not fit the type of its column; true or false."""


def is_number(kind: DataType) -> bool:
    return isinstance(kind, IntegralType | FloatType | DoubleType | DecimalType)


def pattern(kind: DataType) -> str:
    """The regular expression of a number of that type. Around a float blanks are allowed, as Spark has always read them."""
    if isinstance(kind, IntegralType):
        return rf"\A{_WHOLE}\z"
    return rf"\A{_FRACTION}\z" if isinstance(kind, DecimalType) else rf"\A[ \t]*{_FRACTION}[ \t]*\z"


def number(text: Column, kind: DataType, options: Mapping[str, str]) -> Column:
    """The text as a number; NULL if it is NULL, or out of range, and for some texts that are no numbers: `is_refused` tells of all.
    `options` are those of the table, in lower case, which may name texts for NaN and infinity."""
    cast = text.try_cast(kind)
    if not isinstance(kind, FloatType | DoubleType):
        return cast
    finite = F.when(F.abs(cast) < float("inf"), cast)
    special = [(F.lit(options[name]), F.lit(value).cast(kind)) for name, value in _OPTIONS.items() if name in options]
    return reduce(lambda otherwise, pair: F.when(text == pair[0], pair[1]).otherwise(otherwise), special, finite)


def is_refused(text: Column, kind: DataType, options: Mapping[str, str]) -> Column:
    """Whether a text is not NULL and not a number of that type. False for types that are not numbers."""
    if not is_number(kind):
        return F.lit(False)
    special = [options[name] for name in _OPTIONS if name in options] if isinstance(kind, FloatType | DoubleType) else []
    # Characters that no number has, out of those in texts that Spark casts to that type.
    strange = _NOT_WHOLE if isinstance(kind, IntegralType) else _NOT_DECIMAL if isinstance(kind, DecimalType) else _NOT_FLOAT
    is_strange = text.rlike(strange)
    return text.isNotNull() & (number(text, kind, options).isNull() | (is_strange & ~text.isin(special) if special else is_strange))


def doubt(kinds: Collection[DataType]) -> str:
    """An expression of RE2 for records in which Spark reads a number of these types that is none, and not infinite or NaN. A look at the
    record with Arrow costs a twentieth of Spark's parser, and one in Java as much as the parser."""
    has_floats = any(isinstance(kind, FloatType | DoubleType) for kind in kinds)
    return f"{_JAVAS}|{DIGITS}" if has_floats else DIGITS


def is_unbounded(values: Collection[tuple[Column, DataType]]) -> Column:
    """Whether one of the values is infinite or NaN."""
    floats = [F.abs(value).cast(DoubleType()) for value, kind in values if isinstance(kind, FloatType | DoubleType)]
    # NaN is the greatest; NULL is left out.
    return F.coalesce(F.greatest(*floats, *floats[:1]) >= float("inf"), F.lit(False)) if floats else F.lit(False)


def any_misfit(values: Values, is_misfit: Test) -> Column:
    """Whether one of the values does not fit; false if there are none."""

    def any_of_type(kind: DataType, names: list[str]) -> Column:
        return F.exists(F.array(*[values[name][0] for name in names]), lambda value: is_misfit(value, kind))

    return reduce(or_, [any_of_type(kind, names) for kind, names in _names_by_type(values).items()], F.lit(False))


def first_misfit(values: Values, is_misfit: Test) -> Column:
    """The fault of the first value that does not fit, in the order of the columns; NULL if all fit."""
    places = {name: place for place, name in enumerate(values)}

    def first_place(kind: DataType, names: list[str]) -> Column:
        misfits = F.transform(F.array(*[values[name][0] for name in names]), lambda value: is_misfit(value, kind))
        return F.get(F.array(*[F.lit(places[name]) for name in names]), F.array_position(misfits, F.lit(True)) - 1)

    firsts = [first_place(kind, names) for kind, names in _names_by_type(values).items()]
    messages = [F.lit(f"{name} is not {kind.simpleString()}") for name, (_, kind) in values.items()]
    return F.get(F.array(*messages), F.least(*firsts, *firsts[:1])) if firsts else F.lit(None).cast(StringType())


def _names_by_type(values: Values) -> dict[DataType, list[str]]:
    names: dict[DataType, list[str]] = {}
    for name, (_, kind) in values.items():
        names.setdefault(kind, []).append(name)
    return names
