"""Reads Parquet files whose columns have different types: each group of files with its own types, and all of them with the widest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from pipelines.data.sources.folder_columns import quote_name
from pipelines.data.sources.parquet_columns import NULL, FileColumns, column_kind, is_nanoseconds
from pipelines.data.sources.parquet_types import from_nanoseconds, type_of_nanoseconds, wide_type


@dataclass(frozen=True)
class Group:
    """Files in which no column has two types, as Spark reads them: nanoseconds are integers."""

    files: list[FileColumns]
    rows: DataFrame

    def column(self, name: str, declared: DataType | None) -> tuple[Column, DataType] | None:
        """A column with its type; None if it is NULL in all rows."""
        kind = column_kind(self.files, name)
        field = next((field for field in self.rows.schema if field.name.lower() == name), None)
        if field is None or kind == NULL:
            return None
        column = F.col(quote_name(field.name))
        if is_nanoseconds(kind) and not isinstance(declared, LongType):
            return from_nanoseconds(column, kind), type_of_nanoseconds(kind)
        return column, field.dataType


def read_group(reader: DataFrameReader, files: list[FileColumns], declared: StructType | None, paths: Sequence[str]) -> Group:
    """The group, from `paths`, which are those of the table or of its files."""
    if declared is None:
        return Group(files, reader.load(list(paths)))
    kinds = {field.name: column_kind(files, field.name.lower()) for field in declared}
    fields = [
        StructField(field.name, LongType()) if is_nanoseconds(kinds[field.name]) else field
        for field in declared
        if kinds[field.name] != NULL
    ]
    return Group(files, (reader.schema(StructType(fields)) if fields else reader.schema("_ int")).load(list(paths)))


def union_groups(groups: Sequence[Group], declared: StructType | None) -> DataFrame:
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
