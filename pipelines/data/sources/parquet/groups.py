"""Reads Parquet files whose columns have different types: each group of files with its own types, and all of them with the
widest. Types that Spark does not read as they are are converted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.data.sources.files.folder_columns import quote_name
from pipelines.data.sources.parquet.columns import NANOSECONDS_UTC, NULL, FileColumns, column_kind, is_nanoseconds
from pipelines.errors import SourceError

_WIDENING: tuple[tuple[T.DataType, ...], ...] = (
    (T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()),
    (T.FloatType(), T.DoubleType()),
)
"""Each type holds every value of those before it."""


def from_nanoseconds(nanoseconds: Column, kind: str) -> Column:
    """The timestamps of a column of whole nanoseconds since 1970, rounded down to microseconds. The session's time zone is UTC."""
    # `div` rounds to zero, and `/` would divide doubles.
    microseconds = F.call_function("div", nanoseconds, F.lit(1_000)) - F.when(nanoseconds % 1_000 < 0, 1).otherwise(0)
    return F.timestamp_micros(microseconds).cast(type_of_nanoseconds(kind))


def type_of_nanoseconds(kind: str) -> T.DataType:
    return T.TimestampType() if kind == NANOSECONDS_UTC else T.TimestampNTZType()


def wide_type(name: str, kinds: Sequence[tuple[str, T.DataType]]) -> T.DataType:
    """The narrowest type that holds all values of a column, from its types with a file of each.

    Raises SourceError naming two files if no type does.
    """
    path, wide = kinds[0]
    for other_path, other in kinds[1:]:
        family = next((types for types in _WIDENING if wide in types and other in types), None)
        if family is None and wide != other:
            raise SourceError(
                f"column {name} is {wide.simpleString()} in {path} and {other.simpleString()} in {other_path}, where Spark widens only "
                "integers to integers and floats to doubles; make them tables of their own, and join them in the query: "
                f"SELECT CAST({name} AS {_castable(wide, other)}) AS {name} … UNION ALL SELECT …, with the same CAST in both"
            )
        if family is not None and family.index(other) > family.index(wide):
            path, wide = other_path, other
    return wide


def _castable(*both: T.DataType) -> str:
    """A type to which both can be cast."""
    if not all(isinstance(kind, T.NumericType) for kind in both):
        return T.StringType().simpleString()
    decimals = [kind for kind in both if isinstance(kind, T.DecimalType)]
    integers_else = all(isinstance(kind, T.DecimalType) or kind in _WIDENING[0] for kind in both)
    return f"decimal(38,{max(kind.scale for kind in decimals)})" if decimals and integers_else else T.DoubleType().simpleString()


@dataclass(frozen=True)
class Group:
    """Files in which no column has two types, as Spark reads them: nanoseconds are integers."""

    files: list[FileColumns]
    rows: DataFrame

    def column(self, name: str, declared: T.DataType | None) -> tuple[Column, T.DataType] | None:
        """A column with its type; None if it is NULL in all rows."""
        kind = column_kind(self.files, name)
        field = next((field for field in self.rows.schema if field.name.lower() == name), None)
        if field is None or kind == NULL:
            return None
        column = F.col(quote_name(field.name))
        if is_nanoseconds(kind) and not isinstance(declared, T.LongType):
            return from_nanoseconds(column, kind), type_of_nanoseconds(kind)
        return column, field.dataType


def read_group(reader: DataFrameReader, files: list[FileColumns], declared: T.StructType | None, paths: Sequence[str]) -> Group:
    """The group, from `paths`, which are those of the table or of its files."""
    if declared is None:
        return Group(files, reader.load(list(paths)))
    kinds = {field.name: column_kind(files, field.name.lower()) for field in declared}
    fields = [
        T.StructField(field.name, T.LongType()) if is_nanoseconds(kinds[field.name]) else field
        for field in declared
        if kinds[field.name] != NULL
    ]
    return Group(files, (reader.schema(T.StructType(fields)) if fields else reader.schema("_ int")).load(list(paths)))


def union_groups(groups: Sequence[Group], declared: T.StructType | None) -> DataFrame:
    """Join the rows of all groups, with the columns `declared`, or else all columns in their widest types.

    Raises SourceError if no type holds all values of a column.
    """
    fields = declared.fields if declared is not None else [field for group in groups for field in group.rows.schema]
    names = {field.name.lower(): field.name for field in reversed(fields)}
    selections: list[list[Column]] = [[] for _ in groups]
    for name in dict.fromkeys(field.name.lower() for field in fields):
        declared_type = next(field.dataType for field in fields if field.name.lower() == name)
        columns = [group.column(name, declared_type if declared is not None else None) for group in groups]
        kinds = [(group.files[0].path, column[1]) for group, column in zip(groups, columns, strict=True) if column is not None]
        kind = declared_type if declared is not None or not kinds else wide_type(names[name], kinds)
        for selection, column in zip(selections, columns, strict=True):
            selection.append((F.lit(None) if column is None else column[0]).cast(kind).alias(names[name]))
    return reduce(DataFrame.unionAll, [group.rows.select(*selection) for group, selection in zip(groups, selections, strict=True)])
