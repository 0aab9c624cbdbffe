"""Names and Arrow types of the columns of a query."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.etl.splits.splits import INTERNAL


def raw_schema(rows: DataFrame) -> pa.Schema:
    """The query's columns as Arrow types, in Spark's tasks and in the served model."""
    fields = [field for field in rows.schema.fields if field.name not in INTERNAL]
    timezone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return to_arrow_schema(type(rows.schema)(fields), timezone=timezone)
