"""Columns of a parsed table of text: its own and those of ORIGIN, which contain the fault of a record (NULL if none), and
then the record itself, the number of its range, and its line there.
"""

from typing import cast

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.errors import ConfigError

PROBLEM, RECORD, RANGE, LINE = ORIGIN = ("_problem", "_record", "_range", "_line")
VALUES, REREAD, CORRUPT, END = "_values", "_again", "_corrupt", "_end"
FILE = "_file_of_record"
"""The relative name of a record's file, if the config wants it as a column."""
TEXT, UNKNOWN, KEYLESS = KEY_COLUMNS = ("_json_text", "_json_unknown", "_json_keyless")
KEY_TYPES = f"{TEXT} string, {UNKNOWN} string, {KEYLESS} boolean"
"""Of JSON: the text to parse in place of the record, and what `json_keys` finds."""
LARGE, STRANGE = LOOKS = ("_look_large", "_look_strange")
"""Whether a record may have a number that is too large, or one that is none though Spark reads it."""
RESERVED = {*ORIGIN, *KEY_COLUMNS, *LOOKS, VALUES, REREAD, CORRUPT, END}
"""Names that no column of the table may have."""

# Options that `records` applies before Spark sees a record, and those that every parser gets.
OWN_OPTIONS = {"header", "enforceschema", "skiprows", "multiline", "comment", "encoding", "charset", "escape"}
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
Options = dict[str, str]


def parse_schema(name: str, ddl: str) -> StructType:
    """A table's columns. Raises ConfigError if the schema is not DDL, or uses a reserved name."""
    try:
        schema = cast(StructType, StructType.fromDDL(ddl))
    except ParseException as error:
        raise ConfigError(f"source.tables.{name}.schema: {str(error).strip().splitlines()[0]} (got {ddl})") from error
    if reserved := {field.lower() for field in schema.names} & RESERVED:
        raise ConfigError(f"source.tables.{name}.schema: the column name {', '.join(sorted(reserved))} is taken; choose another")
    return schema


def sound_record(records: DataFrame) -> Column:
    """The record, or NULL if it has a fault."""
    return F.when(records[PROBLEM].isNull(), records[RECORD])
