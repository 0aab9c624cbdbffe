"""CSV: records as columns, each parsed alone and strictly."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.sources.parsed import CORRUPT, OURS, PERMISSIVE, RECORD, VALUES, Options, apart, sound
from pipelines.sources.records import Dialect
from pipelines.sources.text_table import TextTable, encoding_of, is_on

_NEVER = "\x01"
"""A character that occurs in no value, except in files made for that purpose."""


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
            columns=() if is_on(options, "enforceschema") else tuple(self.schema.names),
        )

    def parse(self, records: DataFrame) -> DataFrame:
        """A doubled quote is a quote, as in RFC 4180; Spark's default escapes quotes with a backslash."""
        settings = {"quote": '"', **{name: value for name, value in self.options.items() if name not in OURS}}
        settings["escape"] = self.options.get("escape") or settings["quote"] or "\\"
        values = F.from_csv(sound(records), f"{self.settings.ddl}, {CORRUPT} string", {**settings, **PERMISSIVE})
        parsed = records.withColumn(VALUES, values)
        return apart(parsed, self.schema, F.col(VALUES), F.col(VALUES)[CORRUPT].isNull(), _csv_fault(self.schema, settings))


def _csv_fault(schema: StructType, settings: Options) -> Column:
    """The fault of a record that does not fit the schema, computed only for such records: fewer or more columns,
    or the first value that is not of its column's type."""
    wanted = len(schema)
    separator = settings.get("sep", settings.get("delimiter", ","))
    texts = StructType([StructField(f"_{number}", StringType()) for number in range(wanted + 2)])
    # An additional column reveals the number of columns: empty columns are NULL like missing ones.
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
    """Whether a value is not of its column's type; the text that stands for NULL is of any type."""
    alone = StructType([StructField("value", field.dataType), StructField(CORRUPT, StringType())])
    bare = {**settings, **PERMISSIVE, "sep": _NEVER, "quote": ""}
    return F.from_csv(value, alone.toDDL(), bare)[CORRUPT].isNotNull()
