"""CSV: records as columns, each parsed alone and strictly."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from pipelines.config.messages.words import show_count
from pipelines.data.sources.text.parsed import CORRUPT, OWN_OPTIONS, PERMISSIVE, RECORD, REREAD, STRANGE, VALUES, Options, sound_record
from pipelines.data.sources.text.records import Dialect
from pipelines.data.sources.text.text_table import TextTable, encoding_name, is_on
from pipelines.data.sources.text.type_checks import any_misfit, doubt, first_misfit, is_number, is_refused, is_unbounded, number

_MARKS = ("␂␃␂␄␂␅␂␆", "⟦⟧⟦⟨⟦⟩⟦⟪", "◐◑◐◒◐◓◐◔")
"""Texts that occur in no record by chance. A parser trims no character of them as white space, and none is ASCII, as quotes and escapes
are."""
_LIMITS = ("maxcolumns", "maxcharspercolumn")
"""Beyond them Spark's parser fails the task instead of refusing the record, so they are applied here."""
_MOST_COLUMNS = 2**17
"""A parser holds an array of as many."""


def cutting_rules(options: Options, columns: Sequence[str]) -> Dialect:
    """How the files of a table with these options, by lower-case name, and these columns are cut into records."""
    return Dialect(
        encoding=encoding_name(options),
        multiline=is_on(options, "multiline"),
        quote=options.get("quote", '"'),
        escape=options.get("escape", ""),
        separator=_separator(options),
        ignore_leading_blanks=is_on(options, "ignoreleadingwhitespace"),
        comment=options.get("comment", ""),
        skip=int(options.get("skiprows", 0)),
        header=is_on(options, "header"),
        columns=() if is_on(options, "enforceschema") else tuple(columns),
        width=len(columns),
    )


class Csv(TextTable):
    def dialect(self) -> Dialect:
        return cutting_rules(self.options, self.record_schema.names)

    @property
    def looks(self) -> dict[str, str]:
        kinds = [
            field.dataType for field in self.record_schema if is_number(field.dataType) and not isinstance(field.dataType, DecimalType)
        ]
        return {STRANGE: doubt(kinds)} if kinds else {}

    def parse(self, records: DataFrame) -> DataFrame:
        """A doubled quote is a quote, as in RFC 4180; Spark's default escapes quotes with a backslash."""
        options = {"quote": '"', **{name: value for name, value in self.options.items() if name not in OWN_OPTIONS}}
        options["escape"] = self.options.get("escape") or options["quote"] or "\\"
        settings = {**{name: value for name, value in options.items() if name not in _LIMITS}, "maxcolumns": str(_MOST_COLUMNS)}
        schema = self.record_schema
        read_as = StructType([StructField(f.name, StringType() if _is_text_first(f, settings) else f.dataType) for f in schema])
        too_wide = _is_too_wide(_separator(settings))
        record = F.when(~too_wide, sound_record(records))
        parsed = records.withColumn(VALUES, _read(record, read_as, {**settings, **PERMISSIVE}))
        read = F.col(VALUES)
        columns = {
            field.name: number(read[field.name], field.dataType, settings) if _is_text_first(field, settings) else read[field.name]
            for field in schema
        }
        too_long = _is_too_long([read[field.name] for field in schema if isinstance(field.dataType, StringType)], options)
        parsed, any_refused = _find_refused_numbers(parsed, record, schema, settings)
        fits = read[CORRUPT].isNull() & ~too_wide & ~too_long & ~any_refused
        return self.mark_faults(parsed, columns, fits, _csv_fault(schema, settings, options))


def _read(record: Column, columns: StructType, options: Options) -> Column:
    return F.from_csv(record, StructType([*columns, StructField(CORRUPT, StringType())]).toDDL(), options)


def _is_number(kind: DataType, settings: Options) -> bool:
    """Whether `numbers` say what a column of that type takes, and not Spark: decimals of a `locale` are written as there."""
    return is_number(kind) and not (isinstance(kind, DecimalType) and "locale" in settings)


def _is_text_first(field: StructField, settings: Options) -> bool:
    """Whether a number is read as text: a decimal does not show whether it had commas. Other numbers Spark reads as such, and their text is
    looked at only in doubt."""
    return isinstance(field.dataType, DecimalType) and _is_number(field.dataType, settings)


def _find_refused_numbers(parsed: DataFrame, record: Column, schema: StructType, settings: Options) -> tuple[DataFrame, Column]:
    """The records, and whether a number of a record is none, though Spark has read it. Records that may have one are read once more, as
    text, in a column of its own."""
    read = F.col(VALUES)
    native = [field for field in schema if is_number(field.dataType) and not isinstance(field.dataType, DecimalType)]
    any_refused = _any_refused(read, [field for field in schema if _is_text_first(field, settings)], settings)
    if not native:
        return parsed, any_refused
    texts = StructType([StructField(field.name, StringType()) for field in schema])
    is_doubtful = F.col(STRANGE) | is_unbounded([(read[field.name], field.dataType) for field in native])
    reread = _read(F.when(is_doubtful, record), texts, {**settings, **PERMISSIVE})
    # One question to the column before those to its fields, since nearly all records are not in doubt.
    return parsed.withColumn(REREAD, reread), any_refused | (F.col(REREAD).isNotNull() & _any_refused(F.col(REREAD), native, settings))


def _any_refused(texts: Column, fields: list[StructField], settings: Options) -> Column:
    values = {field.name: (texts[field.name], field.dataType) for field in fields}
    return any_misfit(values, lambda text, kind: is_refused(text, kind, settings))


def _separator(settings: Options) -> str:
    return settings.get("sep", settings.get("delimiter", ",")).replace("\\t", "\t")


def _is_too_wide(separator: str) -> Column:
    """Whether a record may have more columns than the parser takes. Only long ones are searched for separators."""
    length = F.length(RECORD)
    separators = (length - F.length(F.replace(F.col(RECORD), F.lit(separator)))) / len(separator)
    return F.coalesce((length >= _MOST_COLUMNS - 2) & (separators >= _MOST_COLUMNS - 2), F.lit(False))


def _is_too_long(values: list[Column], options: Options) -> Column:
    """Whether one of the values has more characters than maxCharsPerColumn, if that is limited."""
    longest = int(options.get("maxcharspercolumn", -1))
    if longest < 0 or not values:
        return F.lit(False)
    return F.exists(F.array(*values), lambda value: F.coalesce(F.length(value) > longest, F.lit(False)))


def _csv_fault(schema: StructType, settings: Options, options: Options) -> Column:
    """The fault of a record that does not fit the schema, computed only for such records: fewer or more columns,
    or the first value that is not of its column's type."""
    separator = _separator(settings)
    mark = next((mark for mark in _MARKS if not set(mark) & set(separator)), _MARKS[0])
    texts = StructType([StructField(f"_{number}", StringType()) for number in range(len(schema) + 2)])
    # A mark in an additional column reveals the number of columns: empty columns are NULL like missing ones.
    fields = F.from_csv(F.when(~_is_too_wide(separator), F.concat(F.col(RECORD), F.lit(f"{separator}{mark}"))), texts.toDDL(), settings)
    # As the argument of a function, the parser is in the plan once. Once for each field, it took minutes to plan some hundreds of fields.
    return F.transform(F.array(fields), lambda record: _fault_of_fields(record, schema, settings, options, mark))[0]


def _fault_of_fields(fields: Column, schema: StructType, settings: Options, options: Options, mark: str) -> Column:
    """The fault of a record, from a struct of its fields as texts, the mark, and one more."""
    count = len(schema)
    names = [f"_{number}" for number in range(count + 2)]
    record_count = F.array_position(F.array(*[fields[name] for name in names]), mark) - 1
    values = {
        field.name: (fields[f"_{place}"], field.dataType)
        for place, field in enumerate(schema)
        if not isinstance(field.dataType, StringType)
    }
    not_separated = F.lit(f"one column in place of {count}: not separated by {settings.get('sep', settings.get('delimiter', ','))!r}")
    longest = F.lit(f"a value of more than {options.get('maxcharspercolumn')} characters, which maxCharsPerColumn allows")
    return F.coalesce(
        F.when((record_count == 1) & (count > 1), not_separated),
        F.when(record_count.between(1, count - 1), F.lit(f"fewer than {show_count(count, 'column')}")),
        F.when(F.coalesce(record_count, F.lit(-1)) != count, F.lit(f"more than {count} columns")),
        first_misfit(values, lambda text, kind: _cannot_be(text, kind, settings, mark)),
        F.when(_is_too_long([fields[name] for name in names[:count]], options), longest),
        F.lit(f"not a csv record of these {count} columns"),
    )


def _cannot_be(value: Column, kind: DataType, settings: Options, mark: str) -> Column:
    """Whether a value is not of its column's type; the text that stands for NULL is of any type."""
    if _is_number(kind, settings):
        return is_refused(value, kind, settings)
    alone = StructType([StructField("value", kind), StructField(CORRUPT, StringType())])
    bare = {**settings, **PERMISSIVE, "sep": mark, "quote": ""}
    return F.from_csv(value, alone.toDDL(), bare)[CORRUPT].isNotNull()
