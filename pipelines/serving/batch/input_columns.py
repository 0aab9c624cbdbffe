"""The columns that the files of an input have, where they are not those that the config declares: tables of text may come as Parquet, and
columns that only the target needs, such as the label, may be missing.

Parquet is detected by its first bytes, whatever the config says, and its rows are converted to the schema of the table by the rule of
`serving.model.column_casts`. An input lacks a column if no header and no Parquet file names it. CSV without a header lacks columns if its
first record is shorter: by just the columns that only the target needs, or by all that the model does not need. Spark's optimized plan
shows which columns the query reads.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StringType, StructField, StructType

from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.config.source.source import FileTableSettings, Source, Table
from pipelines.config.source.table_settings import TableSettings
from pipelines.data.features.raw import python_rows
from pipelines.data.rowwise.translate import UntranslatableError, columns_in, rowwise, source_columns
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import PARQUET, binary_format, blocks
from pipelines.data.sources.text.csv import Csv
from pipelines.data.sources.text.parsed import PROBLEM, RECORD, parse_schema
from pipelines.data.sources.text.records import cut, split_fields
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.refusals import REASON, refuse_unexpected
from pipelines.etl.splits.split_assignment import exact_column, raw_schema
from pipelines.etl.windows import add_windows
from pipelines.runtime.compat.spark import query_execution
from pipelines.serving.batch.fetched_model import Model
from pipelines.serving.model.column_casts import drop_value, fitting_rows, misfits
from pipelines.spark.plans import items, nodes

log = logging.getLogger(__name__)

_TEXTS = ("csv", "json", "text")
_MOST_FILES = 64
"""Files of a table that are opened, in the order of their names."""
Schemas = Mapping[str, StructType]
"""Columns of tables, by name."""


def detect_formats(config: Config, names: tuple[str, ...]) -> Config:
    """The config with the format `parquet` for those of its tables, all if there are no `names`, that are text and whose files are Parquet.
    Raises SourceError if files are of a format that no table has, are of several formats, or are not Parquet where their table is."""
    tables = dict(config.source.tables)
    for name, table in tables.items():
        if not names or name in names:
            with suppress(*(() if names else (SourceError,))):  # of a table that may not be read at all
                tables[name] = _detect_format(name, table)
    return config.model_copy(update={"source": config.source.model_copy(update={"tables": tables})})


def _detect_format(name: str, table: TableSettings) -> TableSettings:
    if not isinstance(table, Table) or table.format not in (*_TEXTS, "parquet"):
        return table
    formats = {file.path: binary_format(file.path) for file in files.find(table.path)[:_MOST_FILES]}
    if other := next((path for path, kind in formats.items() if kind not in ("", PARQUET)), None):
        raise SourceError(f"{other} is a file of {formats[other]}; write it as csv, json or parquet")
    parquet = [path for path, kind in formats.items() if kind == PARQUET]
    if table.format == "parquet":
        if strangers := [path for path in formats if path not in parquet]:
            raise SourceError(
                f"{strangers[0]} is not Parquet, the format of source.tables.{name}; for text, set --source.tables.{name}.format csv "
                f"and --source.tables.{name}.schema 'column type, …'"
            )
        return table
    if parquet and len(parquet) < len(formats):
        text = next(path for path in formats if path not in parquet)
        raise SourceError(f"{parquet[0]} is Parquet and {text} is not; predict them one after the other")
    if parquet:
        log.info("%s is Parquet, and is read as that, not as %s", table.place, table.format)
    return table.model_copy(update={"format": "parquet", "options": {}}) if parquet else table


def cast_to_schema(rows: DataFrame, name: str, schema: StructType, converts: bool) -> tuple[DataFrame, DataFrame | None]:
    """The columns of `schema` that the rows have, and, where rows are converted, those with a number that its type does not have, as
    `Tables.malformed`. Raises ConfigError if a column has another sort of values than the schema of the table `name`."""
    columns = {column.lower() for column in rows.columns}
    fields = [StructField(field.name, field.dataType) for field in schema if field.name.lower() in columns]
    rows = rows.select(*[exact_column(field.name).alias(field.name) for field in fields])
    arrow_schema = raw_schema(rows.sparkSession.createDataFrame([], StructType(fields)))
    if not converts or raw_schema(rows).equals(arrow_schema):
        return rows, None
    if faults := misfits(arrow_schema, schema_of_rows(rows, raw_schema(rows), arrow_schema)):
        raise ConfigError(f"the files of source.tables.{name} have {name_list(faults)}, as its schema says; change the schema or the files")
    output = StructType([*fields, StructField(PROBLEM, StringType()), StructField(RECORD, StringType())])
    fitted = rows.mapInArrow(partial(_fit, arrow_schema), output).persist()
    reason, nowhere = F.concat(F.lit(f"{name}: "), F.col(PROBLEM)), F.lit(None).cast("string")
    malformed = fitted.where(F.col(PROBLEM).isNotNull())
    malformed = malformed.select(reason.alias("reason"), F.col(RECORD).alias("record"), nowhere.alias("source"))
    return fitted.where(F.col(PROBLEM).isNull()).drop(PROBLEM, RECORD), malformed


def schema_of_rows(rows: DataFrame, schema: pa.Schema, inputs: pa.Schema) -> pa.Schema:
    """The schema of the rows, with the type null for columns of floats without a value: Parquet that pandas wrote has such for texts that
    are all missing. Only columns that do not fit the inputs are read."""
    floats = [field for field in schema if types.is_floating(field.type) and field.name in inputs.names]
    names = [field.name for field in floats if misfits(pa.schema([inputs.field(field.name)]), pa.schema([field]))]
    if not names:
        return schema
    has_value = [F.max(~F.isnan(exact_column(name)) & exact_column(name).isNotNull()) for name in names]
    column_has_value = dict(zip(names, rows.agg(*has_value).first() or (), strict=True))
    return pa.schema(
        [pa.field(field.name, pa.null()) if column_has_value.get(field.name, True) in (False, None) else field for field in schema]
    )


def _fit(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table, reasons = fitting_rows(batch, schema)
        faults = [reason and drop_value(reason) for reason in reasons.to_pylist()]
        records = [reason and json.dumps(python_rows(batch.slice(row, 1))[0], default=str) for row, reason in enumerate(faults)]
        columns = [column.combine_chunks() for column in table.columns] + [pa.array(faults, pa.string()), pa.array(records, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [*schema.names, PROBLEM, RECORD])


@dataclass(frozen=True)
class Reads:
    """Names of raw columns, in lower case."""

    model: frozenset[str]
    """Columns of features, and of conditions on them."""
    target: frozenset[str]
    """Columns of the target."""


def drop_missing_columns(
    spark: SparkSession, config: Config, model: Model, names: Sequence[str], expect: Mapping[str, str]
) -> tuple[Config, dict[str, StructType]]:
    """The config whose tables `names` have the columns that their files have, and the columns that each lacks.

    Tables of Parquet lose their schema, so that numbers are read as they are in the files. `expect` are the expectations that apply to
    rows without a target. Raises ConfigError if the query needs a column that is lacking for more than the target.
    """
    tables = dict(config.source.tables)
    lacking: dict[str, StructType] = {}

    @cache
    def reads() -> Reads:
        schemas = {}
        for name, settings in config.source.tables.items():
            ddl = _ddl(settings)
            if ddl or name in names:
                schema = parse_schema(name, ddl) if ddl else raw_tables(config.source)[name].empty(spark).schema
                names_in_schema = {column.lower() for column in schema.names}
                more = [field for field in lacking.get(name, ()) if field.name.lower() not in names_in_schema]
                schemas[name] = StructType([*schema, *more])
        return _row_reads(config, model, schemas) if model.takes == "rows" else _query_reads(spark, config, schemas, expect)

    for name in names:
        table = raw_tables(config.source)[name]
        if tables[name].format == "parquet":
            lacking[name] = _missing_in_parquet(spark, config, name)
            tables[name] = tables[name].model_copy(update={"ddl": ""})
        elif not isinstance(tables[name], FileTableSettings):
            lacking[name] = _missing_in_query(config, name, table.empty(spark).columns)
        elif isinstance(table, Csv) and tables[name].format == "csv":
            lacking[name] = _missing_in_csv(table, reads)
            fields = [field for field in table.schema if field not in lacking[name].fields]
            if lacking[name].fields:
                tables[name] = tables[name].model_copy(update={"ddl": StructType(fields).toDDL()})
    missing = {name: schema for name, schema in lacking.items() if schema.fields}
    if missing and model.takes == "query":
        _check_not_needed(missing, reads())
    return config.model_copy(update={"source": config.source.model_copy(update={"tables": tables})}), missing


def _check_not_needed(lacking: Schemas, reads: Reads) -> None:
    for name, schema in lacking.items():
        if needed := [field.name for field in schema if field.name.lower() in reads.model]:
            raise ConfigError(
                f"the input of source.tables.{name} has no column {name_list(needed)}, which source.query needs for features or for a "
                "condition; add it to the input"
            )


def _missing_in_parquet(spark: SparkSession, config: Config, name: str) -> StructType:
    """Columns of the schema, or of the query, that the files do not have."""
    table = config.source.tables[name]
    without_schema = config.source.model_copy(update={"tables": {name: table.model_copy(update={"ddl": ""})}})
    columns = raw_tables(without_schema)[name].empty(spark).columns
    if ddl := _ddl(table):
        present = {column.lower() for column in columns}
        return StructType([field for field in parse_schema(name, ddl) if field.name.lower() not in present])
    return _missing_in_query(config, name, columns)


def _missing_in_query(config: Config, name: str, columns: Sequence[str]) -> StructType:
    """Columns of the query that the only table does not have."""
    present = {column.lower() for column in columns}
    query_columns = source_columns(config.source.sql) if len(config.source.tables) == 1 else set()
    return StructType([StructField(column, NullType()) for column in sorted(query_columns) if column.lower() not in present])


def _missing_in_csv(table: Csv, reads: Callable[[], Reads]) -> StructType:
    names = [name.lower() for name in table.schema.names]
    header, record = _first_fields(table)
    lacking: list[str] = []
    if header:
        lacking = [name for name in names if name not in header]
        lacking = [] if not lacking or reads().model & set(lacking) else lacking
    elif record and len(record) < len(names):
        spare = [name for name in names if name not in reads().model]
        labels = [name for name in spare if name in reads().target]
        lacking = next((drop for drop in (labels, spare) if drop and len(record) == len(names) - len(drop)), [])
    return StructType([field for field in table.schema if field.name.lower() in lacking])


def _first_fields(table: Csv) -> tuple[list[str], list[str]]:
    """The names of the header, in lower case, if it is to be compared with the schema, and else the fields of the first record."""
    dialect = table.dialect()
    for file in table.files:
        for batch in cut(blocks(file.path), replace(dialect, header=False, columns=()), file.path):
            records = batch.filter(pc.is_null(batch["problem"]))["record"]
            if len(records):
                fields = split_fields(records[0].as_py(), dialect)
                return ([name.strip().lower() for name in fields], []) if dialect.header and dialect.columns else ([], fields)
    return [], []


def columns_read(config: Config) -> tuple[set[str], set[str]]:
    """The columns of the query that features are made of, and those that the target is made of."""
    features = {column for name, settings in config.dataset.features.items() for column in settings.inputs(name)}
    targets = {column for name, settings in config.dataset.target.items() for column in settings.inputs(name)}
    return features, targets


def _row_reads(config: Config, model: Model, schemas: Schemas) -> Reads:
    """Columns for a model that takes raw rows, for which the query works row by row."""
    try:
        branches = rowwise(config.source.sql, {name: schema.names for name, schema in schemas.items()})
    except UntranslatableError:  # of another config than the model's
        branches = []
    _, targets = columns_read(config)
    expressions = [branch.columns[name.lower()] for branch in branches for name in targets if name.lower() in branch.columns]
    target = {column.lower() for expression in expressions for column in columns_in(expression)}
    return Reads(frozenset(name.lower() for name in model.inputs.names), frozenset(target))


def _query_reads(spark: SparkSession, config: Config, schemas: Schemas, expect: Mapping[str, str]) -> Reads:
    for name, schema in schemas.items():
        # An RDD, since the optimizer would make one empty relation of all.
        spark.createDataFrame(spark.sparkContext.emptyRDD(), schema).createOrReplaceTempView(f"`{name}`")
    rows = rows_to_predict(spark, config.source).withColumn(REASON, F.lit(None).cast("string"))
    features, targets = columns_read(config)
    targets &= set(rows.columns)  # a prediction has no column `future` of source.windows
    return Reads(_source_columns(refuse_unexpected(rows, expect), [*features, REASON]), _source_columns(rows, targets))


def rows_to_predict(spark: SparkSession, source: Source) -> DataFrame:
    """The query's rows, with the columns that `source.windows` makes of the rows before them."""
    rows = spark.sql(source.sql)
    return add_windows(rows, source.windows) if source.windows else rows


def _source_columns(rows: DataFrame, columns: Iterable[str]) -> frozenset[str]:
    """The columns of the tables that these columns of `rows` are computed from, or that decide which rows there are."""
    listed = list(nodes(query_execution(rows.select(*[exact_column(name) for name in sorted(columns)])).optimizedPlan()))
    leaves = [node for node in listed if not node.children().size()]
    inner = [node for node in listed if node.children().size()]
    raw = {str(column.exprId()) for leaf in leaves for column in items(leaf.output())}
    used = [*items(listed[0].output()), *(column for node in inner for column in items(node.references().toSeq()))]
    return frozenset(str(column.name()).lower() for column in used if str(column.exprId()) in raw)


def _ddl(table: TableSettings) -> str:
    """The schema of a table; empty if its settings give none."""
    return str(getattr(table, "ddl", ""))
