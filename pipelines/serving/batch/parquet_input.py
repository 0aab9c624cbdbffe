"""Files of Parquet in place of text: their table is found by their first bytes, whatever the config says, and their rows are converted to
the schema that the table declares, by the rule of `serving.model.column_casts`."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.types as types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import TableSettings
from pipelines.data.features.raw import python_rows
from pipelines.data.sources.files import files
from pipelines.data.sources.files.content import PARQUET, binary_format
from pipelines.data.sources.text.parsed import PROBLEM, RECORD
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.splits.row_placement import exact_column, raw_schema
from pipelines.serving.model.column_casts import drop_value, fitting_rows, misfits

log = logging.getLogger(__name__)

_TEXTS = ("csv", "json", "text")
_MOST_FILES = 64
"""Files of a table that are opened, in the order of their names."""


def detect_formats(config: Config, names: tuple[str, ...]) -> Config:
    """The config with the format `parquet` for those of its tables, all if there are no `names`, that are text and whose files are Parquet.

    Raises SourceError if files are of a format that no table has, are of several formats, or are not Parquet where their table is.
    """
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
