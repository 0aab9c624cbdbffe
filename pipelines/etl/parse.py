"""Records of csv and json as Spark rows, each parsed alone and strictly.

A parsed table has its own columns and those of ORIGIN: what is wrong with the record (NULL if nothing), and then the
record itself, the number of the range it was in, and its line there.
"""

import codecs
from typing import cast

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from pipelines.config.source import Table
from pipelines.errors import ConfigError
from pipelines.etl.records import Dialect

PROBLEM, RECORD, RANGE, LINE = ORIGIN = ("_problem", "_record", "_range", "_line")
_VALUES, _CORRUPT, _END = "_values", "_corrupt", "_end"

_NEVER = "\x01"
"""A character that no value holds, except in a file that was made to hold it."""

# Options that are obeyed before Spark sees a record, and those that every parser gets.
_OURS = {"header", "enforceschema", "skiprows", "multiline", "comment", "encoding", "charset", "escape"}
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
Options = dict[str, str]


def schema_of(name: str, table: Table, default: str = "") -> StructType:
    """The table's columns. Raises ConfigError if the schema is not DDL, or has a name that is needed here."""
    try:
        schema = cast(StructType, StructType.fromDDL(table.ddl or default))
    except ParseException as error:
        raise ConfigError(f"source.tables.{name}.schema: {str(error).strip().splitlines()[0]} (got {table.ddl})") from error
    if taken := {field.lower() for field in schema.names} & {*ORIGIN, _VALUES, _CORRUPT, _END}:
        raise ConfigError(f"source.tables.{name}.schema: the column name {', '.join(sorted(taken))} is taken; choose another")
    return schema


def csv_dialect(options: Options, columns: list[str]) -> Dialect:
    return Dialect(
        encoding=_encoding(options),
        multiline=_yes(options, "multiline"),
        quote=options.get("quote", '"'),
        escape=options.get("escape", ""),
        separator=options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t"),
        ignore_leading_blanks=_yes(options, "ignoreleadingwhitespace"),
        comment=options.get("comment", ""),
        skip=int(options.get("skiprows", 0)),
        header=_yes(options, "header"),
        columns=() if _yes(options, "enforceschema") else tuple(columns),
    )


def json_dialect(options: Options) -> Dialect:
    return Dialect(encoding=_encoding(options), json=True, whole=_yes(options, "multiline"))


def text_dialect(options: Options) -> Dialect:
    return Dialect(encoding=_encoding(options), whole=_yes(options, "wholetext"), keep_blank=True)


def csv_rows(records: DataFrame, schema: StructType, ddl: str, options: Options) -> DataFrame:
    """Records parsed as csv. A doubled quote is a quote, as RFC 4180 has it; in Spark's default a backslash escapes it."""
    settings = {"quote": '"', **{name: value for name, value in options.items() if name not in _OURS}}
    settings["escape"] = options.get("escape") or settings["quote"] or "\\"
    values = F.from_csv(_sound(records), f"{ddl}, {_CORRUPT} string", {**settings, **_PERMISSIVE})
    parsed = records.withColumn(_VALUES, values)
    return _apart(parsed, schema, F.col(_VALUES), F.col(_VALUES)[_CORRUPT].isNull(), _csv_fault(schema, settings))


def _csv_fault(schema: StructType, settings: Options) -> Column:
    """What is wrong with a record that does not fit the schema, computed for such a record only: its columns are fewer or more,
    or the first value that is not of its column's type."""
    wanted = len(schema)
    separator = settings.get("sep", settings.get("delimiter", ","))
    texts = StructType([StructField(f"_{number}", StringType()) for number in range(wanted + 2)])
    # How many columns there are shows where one more comes to lie: empty ones are NULL, as those that are not there.
    ended = F.concat(F.col(RECORD), F.lit(f"{separator}{_NEVER}".replace("\\t", "\t")))
    found = F.from_csv(ended, texts.toDDL(), settings)
    there = F.array_position(F.array(*[found[name] for name in texts.names]), _NEVER) - 1
    fits = [
        F.when(_cannot_be(found[f"_{number}"], field, settings), F.lit(f"{field.name} is not {field.dataType.simpleString()}"))
        for number, field in enumerate(schema)
        if not isinstance(field.dataType, StringType)
    ]
    one = F.lit(f"one column in place of {wanted}: not separated by {separator!r}")
    return F.coalesce(
        F.when((there == 1) & (wanted > 1), one),
        F.when(there.between(1, wanted - 1), F.lit(f"fewer than {wanted} columns")),
        F.when(there != wanted, F.lit(f"more than {wanted} columns")),
        *fits,
        F.lit(f"not a csv record of these {wanted} columns"),
    )


def _cannot_be(value: Column, field: StructField, settings: Options) -> Column:
    """Whether a value alone is not of its column's type; one that is given for NULL is of any."""
    alone = StructType([StructField("value", field.dataType), StructField(_CORRUPT, StringType())])
    bare = {**settings, **_PERMISSIVE, "sep": _NEVER, "quote": ""}
    return F.from_csv(value, alone.toDDL(), bare)[_CORRUPT].isNotNull()


def json_rows(records: DataFrame, schema: StructType, options: Options) -> DataFrame:
    """Records parsed as one JSON object each.

    Spark stops where the first value ends, whatever follows. So the record is put into an array, before an element that
    marks the end: it is sound if that element is the second one.
    """
    allowed = {name: value for name, value in options.items() if name not in _OURS}
    settings = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **allowed, **_PERMISSIVE}
    element = StructType([*schema.fields, StructField(_END, IntegerType())])
    wrapped = StructType([StructField(_VALUES, ArrayType(element)), StructField(_CORRUPT, StringType())])
    text = F.concat(F.lit(f'{{"{_VALUES}":['), _sound(records), F.lit(f',{{"{_END}":1}}]}}'))
    parsed = records.withColumn(_VALUES, F.from_json(text, wrapped, settings))
    elements = F.col(_VALUES)[_VALUES]
    record, mark = F.get(elements, F.lit(0)), F.get(elements, F.lit(1))
    whole = F.col(_VALUES)[_CORRUPT].isNull() & (F.size(elements) == 2) & (mark[_END] == 1) & record.isNotNull()
    return _apart(parsed, schema, record, F.coalesce(whole, F.lit(False)), F.lit("not a JSON object of these columns' types"))


def text_rows(records: DataFrame, schema: StructType) -> DataFrame:
    """Records as the one column of the schema."""
    return records.select(_sound(records).alias(schema.names[0]), *_origin(F.col(PROBLEM)))


def _apart(parsed: DataFrame, schema: StructType, values: Column, sound: Column, reason: Column) -> DataFrame:
    """The fields of `values`, and where a record came from, with the reason, if it is not `sound`."""
    missing = [
        F.when(values[field.name].isNull(), F.lit(f"NULL in {field.name}, which is NOT NULL")) for field in schema if not field.nullable
    ]
    problem = F.coalesce(F.col(PROBLEM), F.when(~sound, reason), *missing)
    return parsed.select(*[values[name].alias(name) for name in schema.names], *_origin(problem))


def _origin(problem: Column) -> list[Column]:
    """The columns of ORIGIN, empty for good rows so that they take no room."""
    return [problem.alias(PROBLEM), *[F.when(problem.isNotNull(), F.col(name)).alias(name) for name in (RECORD, RANGE, LINE)]]


def _sound(records: DataFrame) -> Column:
    return F.when(records[PROBLEM].isNull(), records[RECORD])


def _yes(options: Options, name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _encoding(options: Options) -> str:
    return codecs.lookup(options.get("encoding", options.get("charset", "utf-8"))).name
