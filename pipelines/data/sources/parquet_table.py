"""Parquet: Spark reads it in place, after a check of its footers, since it has no malformed records.

Spark takes the schema of one file for all. So files whose columns have different types are read apart, each group with its own types, which
are then widened where no value can change. Types that Spark does not read as they are are converted."""

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.messages.words import name_list
from pipelines.data.sources import parquet_footers
from pipelines.data.sources.base import Rows
from pipelines.data.sources.files import files
from pipelines.data.sources.files.folder_columns import check_values, folder_columns, resolve_types
from pipelines.data.sources.files.spark_files import SparkFiles, literal_path
from pipelines.data.sources.parquet_footers import NANOSECONDS_UTC, NULL, FileColumns, column_kind, is_nanoseconds
from pipelines.data.sources.spark_sql import quote_name
from pipelines.data.sources.text.parsed import FILE, parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError

log = logging.getLogger(__name__)

_SCHEME = "^file:/+"
"""Of local files, which Spark writes with one slash or with three."""
_WIDENING: tuple[tuple[T.DataType, ...], ...] = (
    (T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()),
    (T.FloatType(), T.DoubleType()),
)
"""Each type holds every value of those before it."""


def from_nanoseconds(nanoseconds: Column, kind: str) -> tuple[Column, T.DataType]:
    """The timestamps of a column of whole nanoseconds since 1970, rounded down to microseconds, and their type. The session's time zone is
    UTC."""
    # `div` rounds to zero, and `/` would divide doubles.
    microseconds = F.call_function("div", nanoseconds, F.lit(1_000)) - F.when(nanoseconds % 1_000 < 0, 1).otherwise(0)
    sql_type = T.TimestampType() if kind == NANOSECONDS_UTC else T.TimestampNTZType()
    return F.timestamp_micros(microseconds).cast(sql_type), sql_type


def wide_type(name: str, kinds: Sequence[tuple[str, T.DataType]]) -> T.DataType:
    """The narrowest type that holds all values of a column, from its types with a file of each. Raises SourceError naming two files if no
    type does."""
    path, wide = kinds[0]
    for other_path, other in kinds[1:]:
        family = next((types for types in _WIDENING if wide in types and other in types), None)
        if family is None and wide != other:
            both = (wide, other)
            decimals = [kind for kind in both if isinstance(kind, T.DecimalType)]
            castable = "double"
            if not all(isinstance(kind, T.NumericType) for kind in both):
                castable = "string"
            elif decimals and all(isinstance(kind, T.DecimalType) or kind in _WIDENING[0] for kind in both):
                castable = f"decimal(38,{max(kind.scale for kind in decimals)})"
            raise SourceError(
                f"column {name} is {wide.simpleString()} in {path} and {other.simpleString()} in {other_path}, where Spark widens only "
                "integers to integers and floats to doubles; make them tables of their own, and join them in the query: "
                f"SELECT CAST({name} AS {castable}) AS {name} … UNION ALL SELECT …, with the same CAST in both"
            )
        if family is not None and family.index(other) > family.index(wide):
            path, wide = other_path, other
    return wide


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
            return from_nanoseconds(column, kind)
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
    """Join the rows of all groups, with the columns `declared`, or else all columns in their widest types. Raises SourceError if no type
    holds all values of a column."""
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


class Parquet(SparkFiles):
    @cached_property
    def schema(self) -> StructType | None:
        return parse_schema(self.name, self.settings.ddl) if self.settings.ddl else None

    def empty(self, spark: SparkSession) -> DataFrame:
        """The table itself, whose rows are read only after its files are checked."""
        return self._add_file_name(spark, self._frame(spark, self._file_columns(spark)))

    def rows(self, spark: SparkSession) -> Rows:
        """Parquet needs no parsing, so its rows are not cached."""
        if len(self.settings.paths) > 1 and not self.load_paths and (path := files.first_duplicate(self.settings.paths)):
            raise SourceError(f"{path} is in several of the table's paths, and Spark would read its rows for each; name it in one of them")
        listing = self._listing(spark)
        self.count_files(listing)
        if self.schema is not None and self.options.get("recursivefilelookup") != "true":
            folder_schema = resolve_types(folder_columns(self.settings.place, self.files), self.schema)
            check_values(spark, self.settings.place, self.files, folder_schema)
        columns = self._file_columns(spark)
        count = parquet_footers.check_rows(spark, listing)
        for name in _names(columns):
            if rounded := next((file for file in columns if is_nanoseconds(file.kind(name))), None):
                log.warning(
                    "source.tables.%s: column %s is %s in %s; rounded down to microseconds, as Spark has no nanoseconds",
                    *(self.name, name, rounded.kind(name), rounded.path),
                )
        return Rows(self._add_file_name(spark, self._frame(spark, columns)), count)

    def reader_failed(self, error: Exception) -> bool:
        return parquet_footers.reader_failed(error)

    def damage(self, spark: SparkSession) -> str:
        return parquet_footers.damage(spark, [file.path for file in files.find(self.settings.paths)])

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """Checksums with the folders that make columns, and with names if a statement reads them."""
        yield from self.content_lines(files, bool(self.settings.file_column) or any("_metadata" in sql.lower() for sql in statements))

    def _add_file_name(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Add the relative name of each row's file, if the config wants it."""
        if not self.settings.file_column:
            return rows
        places = [(re.sub(_SCHEME, "/", uri), self.relative_name(unquote(uri))) for uri in self._listing(spark).inputFiles()]
        names = spark.createDataFrame(places, f"{FILE} string, {self.settings.file_column} string")
        return rows.join(F.broadcast(names), FILE, "left").drop(FILE)

    def _add_uri(self, rows: DataFrame) -> DataFrame:
        """Add the URI of each row's file as FILE, if `_add_file_name` needs it."""
        uri = F.regexp_replace("_metadata.file_path", _SCHEME, "/")
        return rows.select("*", uri.alias(FILE)) if self.settings.file_column else rows

    def _listing(self, spark: SparkSession) -> DataFrame:
        """The rows without columns but those of folders. Any schema will do for a list of files, and saves Spark from inferring one."""
        return self.reader(spark).schema("_ int").load(list(self.load_paths or self.settings.paths))

    def _file_columns(self, spark: SparkSession) -> list[FileColumns]:
        """The columns of each file that the config asks for. Raises SourceError if one is missing, or cannot be read."""
        listing = self._listing(spark)
        columns = parquet_footers.file_columns(spark, sorted(listing.inputFiles()))
        types = None if self.schema is None else {field.name.lower(): field.dataType.simpleString() for field in self.schema}
        if columns and types is not None:
            names = [*_names(columns), *(name.lower() for name in listing.columns[1:])]
            if missing := [name for name in types if name not in names]:
                raise SourceError(f"{self.settings.place} has no column {name_list(missing)}; it has {name_list(names, missing[0])}")
            columns = [FileColumns(file.path, {name: file.leaves[name] for name in file.leaves if name in types}) for file in columns]
        parquet_footers.check_readable(columns, types)
        if self.options.get("mergeschema", "").lower() != "true":
            parquet_footers.check_same_columns(columns)
        return columns

    def _frame(self, spark: SparkSession, columns: list[FileColumns]) -> DataFrame:
        """The table's columns. Only where files have other types than the table, they are read in groups."""
        groups, paths = parquet_footers.group_by_types(columns), list(self.load_paths or self.settings.paths)
        kinds = [column_kind(columns, name) for name in _names(columns)]
        are_converted = any(is_nanoseconds(kind) or (kind == NULL and self.schema is not None) for kind in kinds)
        if len(groups) <= 1 and not are_converted:
            reader = self.reader(spark)
            return self._add_uri((reader if self.schema is None else reader.schema(self.schema)).load(paths))
        read = [group for files in groups for group in self._groups(spark, files, paths if len(groups) == 1 else None)]
        folders = [field for field in self._listing(spark).schema.fields[1:] if field.name not in (self.schema or StructType()).names]
        for field in folders:
            if any(field.name not in group.rows.columns for group in read):
                raise SourceError(
                    f"{self.settings.place}: its files have different types, and its folders make the column {field.name}; "
                    "give the folder above as the path, without wildcards"
                )
        added = [*folders, *([StructField(FILE, StringType())] if self.settings.file_column else [])]
        return union_groups(
            [replace(group, rows=self._add_uri(group.rows)) for group in read],
            None if self.schema is None else StructType([*self.schema.fields, *added]),
        )

    def _groups(self, spark: SparkSession, group: list[FileColumns], paths: list[str] | None) -> Iterator[Group]:
        """The group, or its files below each of the table's folders, since Spark makes columns of the folders below one."""
        if paths:
            yield read_group(self.reader(spark), group, self.schema, paths)
            return
        folders = [re.sub(r"\\(.)", r"\1", path) for path in self.settings.paths]  # a backslash takes the next character as itself
        by_folder: dict[str, list[FileColumns]] = {}
        for file in group:
            inner = f"/{_inner(unquote(file.path))}"
            folder = next((folder for folder in folders if inner.startswith(f"/{_inner(folder)}/")), "")  # none of a named file
            by_folder.setdefault(folder, []).append(file)
        for folder, inner_files in by_folder.items():
            reader = self.reader(spark).option("basePath", folder) if folder else self.reader(spark)
            yield read_group(reader, inner_files, self.schema, [literal_path(unquote(file.path)) for file in inner_files])


def _names(columns: list[FileColumns]) -> list[str]:
    return list(dict.fromkeys(name for file in columns for name in file.leaves))


def _inner(path: str) -> str:
    """A path or URI without scheme and slashes at its ends, to be compared."""
    return re.sub("^file:", "", path).strip("/")
