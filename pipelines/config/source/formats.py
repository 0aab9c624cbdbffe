"""The formats of raw tables by name: the class that reads a format, and the options that it supports."""

from dataclasses import dataclass

_DATES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale")
TEXT_OPTIONS = ("encoding", "charset")
_FOUND = ("pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter")
_CSV = (
    "sep", "delimiter", "quote", "escape", "comment", "header", "enforceSchema", "skipRows", "multiLine",
    "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "nanValue", "positiveInf", "negativeInf", "emptyValue",
    "maxColumns", "maxCharsPerColumn",
)  # fmt: skip
JSON_OPTIONS = (
    "multiLine", "primitivesAsString", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros",
    "allowNonNumericNumbers", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars",
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    implementation: str
    """`module:Class` of the `pipelines.data.sources.base.RawTable` that reads it."""
    options: tuple[str, ...] = ()
    needs_schema: bool = False


FORMATS = {
    "csv": Format("pipelines.data.sources.text.csv:Csv", _CSV + _DATES + TEXT_OPTIONS, needs_schema=True),
    "json": Format("pipelines.data.sources.text.json:Json", JSON_OPTIONS + _DATES + TEXT_OPTIONS, needs_schema=True),
    "parquet": Format("pipelines.data.sources.parquet.parquet:Parquet", ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode", *_FOUND)),
    "text": Format("pipelines.data.sources.text.lines:Text", ("wholetext", *TEXT_OPTIONS)),
    "binaryFile": Format("pipelines.data.sources.files.binary_file:BinaryFile", _FOUND),
    "idx": Format("pipelines.data.sources.files.idx:Idx"),
    "package": Format("pipelines.data.sources.text.csv:Csv", _CSV + _DATES + TEXT_OPTIONS),
    "excel": Format("pipelines.data.sources.cells.excel:Excel", ("header", "skipRows", "nullValue"), needs_schema=True),
    "sqlite": Format("pipelines.data.sources.cells.sqlite:Sqlite", needs_schema=True),
    "tar": Format("pipelines.data.sources.files.tar:Tar"),
}
