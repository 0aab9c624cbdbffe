"""Conditions on many columns, as expressions that Spark plans and compiles in seconds for thousands of them.

Spark handles expressions by recursion, so a chain of some hundreds overflows Java's stack, and it compiles a test of each column for
minutes. So columns of one type are an array, with one test of its elements.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

Values = Mapping[str, tuple[Column, DataType]]
"""Values of a record by column, and the type of that column. Where types are equal, those of the values are."""
Test = Callable[[Column, DataType], Column]
"""Whether a value, which may be NULL, does not fit the type of its column; true or false."""


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
