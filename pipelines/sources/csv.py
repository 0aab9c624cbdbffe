"""CSV: records as columns, each parsed alone and strictly."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from pipelines.sources.numbers import any_refused, is_number, is_refused, number
from pipelines.sources.parsed import CORRUPT, OURS, PERMISSIVE, RECORD, VALUES, Options, sound
from pipelines.sources.records import Dialect
from pipelines.sources.text_table import TextTable, encoding_of, is_on

_MARKS = ("␂␃␂␄␂␅␂␆", "⟦⟧⟦⟨⟦⟩⟦⟪", "◐◑◐◒◐◓◐◔")
"""Texts that occur in no record by chance. A parser trims no character of them as white space, and none is ASCII, as quotes and escapes
are."""
_LIMITS = ("maxcolumns", "maxcharspercolumn")
"""Beyond them Spark's parser fails the task instead of refusing the record, so they are applied here."""
_MOST_COLUMNS = 2**17
"""A parser holds an array of as many."""


class Csv(TextTable):
    def dialect(self) -> Dialect:
        options = self.options
        return Dialect(
            encoding=encoding_of(options),
            multiline=is_on(options, "multiline"),
            quote=options.get("quote", '"'),
            escape=options.get("escape", ""),
            separator=options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t"),
            ignore_leading_blanks=is_on(options, "ignoreleadingwhitespace"),
            comment=options.get("comment", ""),
            skip=int(options.get("skiprows", 0)),
            header=is_on(options, "header"),
            columns=() if is_on(options, "enforceschema") else tuple(self.record_schema.names),
        )

    def parse(self, records: DataFrame) -> DataFrame:
        """A doubled quote is a quote, as in RFC 4180; Spark's default escapes quotes with a backslash."""
        given = {"quote": '"', **{name: value for name, value in self.options.items() if name not in OURS}}
        given["escape"] = self.options.get("escape") or given["quote"] or "\\"
        settings = {**{name: value for name, value in given.items() if name not in _LIMITS}, "maxcolumns": str(_MOST_COLUMNS)}
        schema = self.record_schema
        texts = StructType([StructField(f.name, StringType() if _is_read_here(f, settings) else f.dataType) for f in schema])
        too_wide = _is_too_wide(_separator(settings))
        read_as = StructType([*texts, StructField(CORRUPT, StringType())]).toDDL()
        parsed = records.withColumn(VALUES, F.from_csv(F.when(~too_wide, sound(records)), read_as, {**settings, **PERMISSIVE}))
        read = F.col(VALUES)
        numbers_read = {
            field.name: (read[field.name], number(read[field.name], field.dataType, settings), field.dataType)
            for field in schema
            if _is_read_here(field, settings)
        }
        too_long = _is_too_long([read[field.name] for field in schema if isinstance(field.dataType, StringType)], given)
        fits = read[CORRUPT].isNull() & ~too_wide & ~too_long & ~any_refused(numbers_read, settings)
        columns = {name: numbers_read[name][1] if name in numbers_read else read[name] for name in schema.names}
        return self.apart(parsed, columns, fits, _csv_fault(schema, settings, given))


def _is_read_here(field: StructField, settings: Options) -> bool:
    """Whether `numbers` read it, and not Spark: decimals of a `locale` are written as there."""
    return is_number(field.dataType) and not (isinstance(field.dataType, DecimalType) and "locale" in settings)


def _separator(settings: Options) -> str:
    return settings.get("sep", settings.get("delimiter", ",")).replace("\\t", "\t")


def _is_too_wide(separator: str) -> Column:
    """Whether a record may have more columns than the parser takes. Only long ones are searched for separators."""
    length = F.length(RECORD)
    separators = (length - F.length(F.replace(F.col(RECORD), F.lit(separator)))) / len(separator)
    return F.coalesce((length >= _MOST_COLUMNS - 2) & (separators >= _MOST_COLUMNS - 2), F.lit(False))


def _is_too_long(values: list[Column], given: Options) -> Column:
    """Whether one of the values has more characters than maxCharsPerColumn, if that is limited."""
    longest = int(given.get("maxcharspercolumn", -1))
    any_of = reduce(Column.__or__, [F.coalesce(F.length(value) > longest, F.lit(False)) for value in values], F.lit(False))
    return any_of if longest >= 0 else F.lit(False)


def _csv_fault(schema: StructType, settings: Options, given: Options) -> Column:
    """The fault of a record that does not fit the schema, computed only for such records: fewer or more columns,
    or the first value that is not of its column's type."""
    wanted, separator = len(schema), _separator(settings)
    mark = _mark(separator)
    texts = StructType([StructField(f"_{number}", StringType()) for number in range(wanted + 2)])
    # An additional column reveals the number of columns: empty columns are NULL like missing ones.
    found = F.from_csv(F.when(~_is_too_wide(separator), F.concat(F.col(RECORD), F.lit(f"{separator}{mark}"))), texts.toDDL(), settings)
    there = F.array_position(F.array(*[found[name] for name in texts.names]), mark) - 1
    fits = [
        F.when(_cannot_be(found[f"_{number}"], field, settings, mark), F.lit(f"{field.name} is not {field.dataType.simpleString()}"))
        for number, field in enumerate(schema)
        if not isinstance(field.dataType, StringType)
    ]
    one = F.lit(f"one column in place of {wanted}: not separated by {settings.get('sep', settings.get('delimiter', ','))!r}")
    longest = F.lit(f"a value of more than {given.get('maxcharspercolumn')} characters, which maxCharsPerColumn allows")
    return F.coalesce(
        F.when((there == 1) & (wanted > 1), one),
        F.when(there.between(1, wanted - 1), F.lit(f"fewer than {wanted} columns")),
        F.when(F.coalesce(there, F.lit(-1)) != wanted, F.lit(f"more than {wanted} columns")),
        *fits,
        F.when(_is_too_long([found[name] for name in texts.names[:wanted]], given), longest),
        F.lit(f"not a csv record of these {wanted} columns"),
    )


def _mark(separator: str) -> str:
    """A text in which the separator cannot be."""
    return next((mark for mark in _MARKS if not set(mark) & set(separator)), _MARKS[0])


def _cannot_be(value: Column, field: StructField, settings: Options, mark: str) -> Column:
    """Whether a value is not of its column's type; the text that stands for NULL is of any type."""
    if _is_read_here(field, settings):
        return is_refused(value, field.dataType, settings)
    alone = StructType([StructField("value", field.dataType), StructField(CORRUPT, StringType())])
    bare = {**settings, **PERMISSIVE, "sep": mark, "quote": ""}
    return F.from_csv(value, alone.toDDL(), bare)[CORRUPT].isNotNull()
