"""Converts the rows of Parquet files to the schema that their table declares, by the rule of `serving.model.columns`."""

import json
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.types as types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.messages.counting import name_list
from pipelines.data.features.raw import python_rows
from pipelines.data.sources.text.parsed import PROBLEM, RECORD
from pipelines.errors import ConfigError
from pipelines.etl.raw_schema import raw_schema
from pipelines.etl.splits.splits import exact_column
from pipelines.serving.model.columns import drop_value, fitting_rows, misfits


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
    names = [field.name for field in schema if types.is_floating(field.type) and misfits(_only(inputs, field), pa.schema([field]))]
    if not names:
        return schema
    has_value = [F.max(~F.isnan(exact_column(name)) & exact_column(name).isNotNull()) for name in names]
    column_has_value = dict(zip(names, rows.agg(*has_value).first() or (), strict=True))
    return pa.schema(
        [pa.field(field.name, pa.null()) if column_has_value.get(field.name, True) in (False, None) else field for field in schema]
    )


def _only(inputs: pa.Schema, field: pa.Field) -> pa.Schema:
    """The input of the name of a field, if there is one."""
    return pa.schema([input for input in inputs if input.name == field.name])


def _fit(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table, reasons = fitting_rows(batch, schema)
        faults = [reason and drop_value(reason) for reason in reasons.to_pylist()]
        records = [reason and json.dumps(python_rows(batch.slice(row, 1))[0], default=str) for row, reason in enumerate(faults)]
        columns = [column.combine_chunks() for column in table.columns] + [pa.array(faults, pa.string()), pa.array(records, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [*schema.names, PROBLEM, RECORD])
