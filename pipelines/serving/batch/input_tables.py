"""The tables of a prediction, and the rows that the model takes from them: for `source.windows`, the rows before those to predict stand in
the input, too."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config import Config, home
from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.load import with_absolute_paths
from pipelines.config.messages.words import name_list
from pipelines.config.source.source import Table
from pipelines.data.rowwise.translate import UntranslatableError, condition_columns, rowwise
from pipelines.data.sources.base import RawTables, raw_tables
from pipelines.data.sources.source_errors import source_errors, table_errors
from pipelines.data.sources.text.parsed import parse_schema
from pipelines.data.versions.raw_inputs import Sources
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.query import check_query
from pipelines.etl.refusals import REASON, refuse_unexpected
from pipelines.etl.splits.split_assignment import exact_column
from pipelines.serving.batch.fetched_model import Model
from pipelines.serving.batch.input_columns import cast_to_schema, columns_read, drop_missing_columns, rows_to_predict
from pipelines.serving.model.process import Takes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputTables:
    """The tables that are read; the query's others are empty."""

    config: Config
    """The config with the paths of the input."""
    tables: RawTables
    by_file: bool
    """Whether each row comes from one row of a table, so that files can be predicted separately."""
    lacking: Mapping[str, StructType]
    """The columns that only the target needs and the files of a table lack."""
    declared: Mapping[str, StructType]
    """The schemas of tables that are read as Parquet, whose files may have numbers of other types."""

    def complete_views(self, spark: SparkSession, takes: Takes, names: Iterable[str] = ()) -> DataFrame | None:
        """Give the views of the tables, or of those with the `names`, the columns of their schemas: NULL for those that only the target
        needs, and numbers in the types of the schema. Returns the rows with a number that its type does not have, as `Tables.malformed`.

        Raises ConfigError if a column has another sort of values than the schema.
        """
        malformed = []
        for name in tuple(names) or tuple(self.tables):
            rows = spark.table(f"`{name}`")
            if name in self.declared:
                rows, misfit_rows = cast_to_schema(rows, name, self.declared[name], converts=takes == "query")
                malformed += [misfit_rows] if misfit_rows is not None else []
            if takes == "query" and name in self.lacking:
                rows = rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in self.lacking[name]})
            rows.createOrReplaceTempView(f"`{name}`")
        return reduce(DataFrame.unionByName, malformed) if malformed else None

    def rows(self, spark: SparkSession, takes: Takes) -> DataFrame:
        """The rows that the model takes, from the views of the tables, with REASON where an expectation refuses one. Of several tables,
        those columns that all of them have."""
        if takes == "query":
            with source_errors(self.config.source, "source.query"):
                rows = rows_to_predict(spark, self.config.source).withColumn(REASON, F.lit(None).cast("string"))
            return refuse_unexpected(rows, applicable_expectations(self.config))
        frames = [spark.table(f"`{name}`") for name in self.tables]
        shared = [name for name in frames[0].columns if all(name in frame.columns for frame in frames)]
        rows = reduce(DataFrame.unionAll, [frame.select(*map(exact_column, shared)) for frame in frames])
        return rows.withColumn(REASON, F.lit(None).cast("string"))

    def checksum_files(self, spark: SparkSession) -> Sources:
        """Every table's files with their checksums."""
        files: Sources = {}
        for name, table in self.tables.items():
            with table_errors(table):
                files[name] = table.identity(spark)
        return files

    def identity(self, files: Sources) -> dict[str, list[str]]:
        """The part of the files' identity that decides rows, by table."""
        statements = (self.config.source.sql, *self.config.source.expect.values())
        return {name: list(table.identity_lines(files[name], statements)) for name, table in self.tables.items()}

    def is_separable(self, files: Sources) -> bool:
        """Whether a row depends only on the bytes of one file, so that new files can be predicted separately."""
        names = self.identity(files)
        return self.by_file and all(
            isinstance(table.settings, Table)
            and table.settings.rules.rows_are_of_one_file
            and names[name] == sorted(file.checksum for file in files[name])
            for name, table in self.tables.items()
        )

    def select(self, files: Sources) -> "InputTables":
        """The input with only these files."""
        tables = dict(self.config.source.tables)
        for name in self.tables:
            tables[name] = tables[name].model_copy(update={"path": tuple(file.path for file in files.get(name, ()))})
        config = self.config.model_copy(update={"source": self.config.source.model_copy(update={"tables": tables})})
        read = {name: table for name, table in raw_tables(config.source).items() if name in self.tables and files.get(name)}
        return replace(self, config=config, tables=read)


def set_input_paths(config: Config, inputs: Sequence[str], default_table: str) -> tuple[Config, tuple[str, ...]]:
    """The config with the paths of `inputs`, `[TABLE=]PATH`, and the names of their tables; `default_table` is that of a path
    without a name. Raises ConfigError if there is no such table, or if it is at no such place."""
    paths: dict[str, list[str]] = {}
    for text in inputs:
        name, equals, path = text.partition("=")
        if not equals or name not in config.source.tables:
            names = list(config.source.tables)
            if not default_table and len(names) != 1:
                raise ConfigError(
                    f"--input {text}: the config has the tables {name_list(names)}; name one of them, as in --input {names[0]}={text}"
                )
            name, path = default_table or names[0], text
        if not path:
            raise ConfigError(f"--input {text}: the path is missing; write --input {name}=PATH")
        paths.setdefault(name, []).append(path)
    tables = dict(config.source.tables)
    for name, table_paths in paths.items():
        try:
            tables[name] = tables[name].at(table_paths)
        except ValueError as error:
            raise ConfigError(f"--input: source.tables.{name} {error}") from error
    changed = config.model_copy(update={"source": config.source.model_copy(update={"tables": tables})})
    return with_absolute_paths(changed, home()), tuple(paths)


def open_input(spark: SparkSession, config: Config, model: Model, named_tables: tuple[str, ...]) -> InputTables:
    """The tables to read: `named_tables`, or else all. A query that is not row by row needs all of its tables."""
    names = [name for name in config.source.tables if name in named_tables or not named_tables or model.takes == "query"]
    declared = {}
    for name, table in config.source.tables.items():
        if isinstance(table, Table) and table.format == "parquet" and table.ddl:
            file_column = [StructField(table.file_column, StringType())] if table.file_column else []
            declared[name] = StructType([*parse_schema(name, table.ddl), *file_column])
    with source_errors(config.source, "source.query"):
        if model.takes == "query":
            check_query(spark, config.source.sql, config.source.tables)  # before anything is analysed: Spark runs commands at once
        config, lacking = drop_missing_columns(spark, config, model, names, applicable_expectations(config))
    tables = raw_tables(config.source)
    columns = {}
    for name in names:
        with table_errors(tables[name]):
            empty = tables[name].empty(spark)
        empty.createOrReplaceTempView(f"`{name}`")
        columns[name] = [*empty.columns, *(lacking[name].names if name in lacking else ())]
    branches: list[str] = []  # the tables whose rows the query takes one by one; none if it is not row by row
    if not config.source.windows:
        with suppress(UntranslatableError):
            branches = list(dict.fromkeys(branch.table for branch in rowwise(config.source.sql, columns)))
    if model.takes == "rows":
        read = named_tables or tuple(branches) or (model.about["table"],)
    else:
        read = tuple(name for name in branches if not named_tables or name in named_tables) if branches else tuple(tables)
    by_file = model.takes == "rows" or bool(branches)
    source = InputTables(config, {name: tables[name] for name in read}, by_file, lacking, declared)
    source.complete_views(spark, model.takes, names)
    return source


def applicable_expectations(config: Config) -> dict[str, str]:
    """The expectations on columns that features are made of: a row to predict need not have a target."""
    features, targets = columns_read(config)
    targets -= features
    if config.source.windows and config.source.windows.horizon:
        targets |= set(config.source.windows.columns)
    hidden = {target.lower() for target in targets}
    return {
        name: text for name, text in config.source.expect.items() if not {column.lower() for column in condition_columns(text)} & hidden
    }


def check_windows_are_complete(windows: WindowSettings | None, rows: int, complete_rows: int) -> None:
    """Logs how many of the query's `rows` have too few rows before them. Raises SourceError if all have."""
    if windows is None or rows <= complete_rows:
        return
    if not complete_rows:
        raise SourceError(
            f"source.windows: none of the {rows:,} rows has {windows.rows_before:,} rows of its series before it; give the last "
            f"{windows.rows_before:,} rows of each series with the rows to predict, in one --input"
        )
    log.info(
        "%s of %s rows are not predicted, since they have fewer than %s rows of their series before them",
        *[f"{number:,}" for number in (rows - complete_rows, rows, windows.rows_before)],
    )
