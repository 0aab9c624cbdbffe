"""Columns from folders `column=value`, as Hive, Spark and Arrow write them: text, unless the schema declares a type.

A type inferred from the values would merge 1 and 01, 1.10 and 1.1, and would change with every folder that is added or removed.
"""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from pipelines.data.sources.files.listing import File, Range
from pipelines.data.sources.spark_sql import quote_name
from pipelines.data.sources.text.parsed import RANGE
from pipelines.data.sources.text.type_checks import is_number, number, pattern
from pipelines.errors import SourceError

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows in which the column is NULL."""
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")
Values = tuple[tuple[str, str | None], ...]
"""The columns of a file, with its value of each."""


def folder_values(file: File) -> Values:
    """The columns and values in a file's folders, unescaped as in Spark."""
    pairs = [part.split("=", 1) for part in file.folders.split("/") if part]
    return tuple((_unescape(name), None if value == NULL else _unescape(value)) for name, value in pairs)


def folder_columns(place: object, files: Sequence[File]) -> tuple[str, ...]:
    """The columns that the folders of the files make. Raises SourceError if the files differ in them, or a value is empty."""
    names = {tuple(name for name, _ in folder_values(file)): file.path for file in files}
    if len({tuple(name.lower() for name in columns) for columns in names}) > 1:
        (columns, first), (differing, second) = list(names.items())[:2]
        raise SourceError(
            f"{place}: {first} lies in folders of the columns {', '.join(columns) or '(none)'}, and {second} in those of "
            f"{', '.join(differing) or '(none)'}; make them tables of their own, or list the files as paths, which have no such columns"
        )
    for file in files:
        if empty := next((name for name, value in folder_values(file) if value == ""), None):
            raise SourceError(f"{place}: {file.path} lies in a folder without a value of {empty}; name the folder {empty}={NULL} for NULL")
    return next(iter(names), ())


def resolve_types(columns: Sequence[str], schema: StructType) -> StructType:
    """Give the folders' columns their names and types in the schema; they are text where it does not name them."""
    fields_by_name = {field.name.lower(): field for field in schema}
    fields = [fields_by_name.get(name.lower(), StructField(name, StringType())) for name in columns]
    return StructType([StructField(field.name, field.dataType) for field in fields])


def check_values(spark: SparkSession, place: object, files: Sequence[File], schema: StructType) -> None:
    """Raises SourceError for a folder whose value is not of the type that the schema declares for its column."""
    typed = {field.name.lower(): field.dataType for field in schema if not isinstance(field.dataType, StringType)}
    for name, kind in typed.items():
        texts = {text: file.path for file in files for column, text in folder_values(file) if column.lower() == name and text is not None}
        if not texts:
            continue
        rows = spark.createDataFrame([(text,) for text in sorted(texts)], "text string")
        wrong = rows.where(_cast_text(F.col("text"), kind).isNull()).first()
        if wrong is not None:
            raise SourceError(
                f"{place}: {texts[wrong.text]} lies in {name}={wrong.text}, which is not {kind.simpleString()}; declare {name} as string "
                "in its schema, or rename the folder"
            )


def join_folder_columns(spark: SparkSession, records: DataFrame, ranges: Sequence[Range], schema: StructType) -> DataFrame:
    """Join records with the columns of the `schema`, from the folders of the files that RANGE numbers."""
    if not schema.fields:
        return records
    rows = [(number, *(value for _, value in folder_values(part.file))) for number, part in enumerate(ranges)]
    texts = spark.createDataFrame(
        rows, StructType([StructField(RANGE, IntegerType()), *(StructField(f.name, StringType()) for f in schema)])
    )
    typed = texts.select(RANGE, *[_cast_text(F.col(quote_name(field.name)), field.dataType).alias(field.name) for field in schema])
    return records.join(F.broadcast(typed), RANGE)


def _cast_text(text: Column, kind: DataType) -> Column:
    """The text of a folder's name in the declared type; NULL if it is not of that type."""
    if is_number(kind):
        return F.when(text.rlike(pattern(kind)), number(text, kind, {}))
    return text.try_cast(kind)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
