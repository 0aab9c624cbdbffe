"""JSON: records as columns, each parsed alone and strictly. A file has one per line, or with `multiLine` is a document.

Spark reads some numbers that are none: floats that are too large, which become infinity, and decimals in quotes with commas or digits of
other scripts. These are found, and their records refused.
"""

from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.data.sources.conditions import conjunction, disjunction
from pipelines.data.sources.text.json_keys import examine_keys
from pipelines.data.sources.text.json_names import Names, key_names
from pipelines.data.sources.text.numbers import DIGITS, pattern
from pipelines.data.sources.text.parsed import (
    CORRUPT,
    END,
    LARGE,
    OWN_OPTIONS,
    PERMISSIVE,
    REREAD,
    STRANGE,
    TEXT,
    VALUES,
    Options,
    sound_record,
)
from pipelines.data.sources.text.records import Dialect
from pipelines.data.sources.text.text_table import Examiner, TextTable, encoding_name, is_on

_NOT_JSON = ("allowsinglequotes", "allowunquotedfieldnames", "allowcomments")


class Json(TextTable):
    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_name(self.options), json=True, whole_file=is_on(self.options, "multiline"))

    @property
    def examiner(self) -> Examiner | None:
        """None with options for text that is not JSON, where strings before colons are not all of the keys."""
        if any(is_on(self.options, option) for option in _NOT_JSON):
            return None
        return partial(examine_keys, Names({field.name: key_names(field.dataType) for field in self.record_schema}))

    @property
    def looks(self) -> dict[str, str]:
        """Expressions for what `_find_infinite` and `_find_strange_decimals` need."""
        kinds = [field.dataType for field in self.record_schema]
        has_floats = any(is_infinite(F.lit(None), kind) is not None for kind in kinds)
        has_decimals = any(is_no_decimal(F.lit(None), kind) is not None for kind in kinds)
        return {**({LARGE: LARGE_NUMBER} if has_floats else {}), **({STRANGE: STRANGE_DECIMAL} if has_decimals else {})}

    def parse(self, records: DataFrame) -> DataFrame:
        """Parse each record in an array, since Spark ignores text after the first value: before an element that marks the end, on a line
        of its own after a comment. The record is valid if that element is the second one."""
        options = {name: value for name, value in self.options.items() if name not in OWN_OPTIONS}
        settings = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **options, **PERMISSIVE}
        parsed_text = F.coalesce(F.col(TEXT), sound_record(records)) if self.examiner else sound_record(records)
        text = F.concat(F.lit(f'{{"{VALUES}":['), parsed_text, F.lit(f'\n,{{"{END}":1}}]}}'))
        parsed = records.withColumn(VALUES, F.from_json(text, _array_schema(self.record_schema), settings))
        elements = F.col(VALUES)[VALUES]
        record, mark = F.get(elements, F.lit(0)), F.get(elements, F.lit(1))
        is_complete = F.col(VALUES)[CORRUPT].isNull() & (F.size(elements) == 2) & (mark[END] == 1) & record.isNotNull()
        columns = {name: record[name] for name in self.record_schema.names}
        parsed, strange = self._find_strange_decimals(parsed, text, settings)
        wrong = [*self._find_infinite(record), *strange]
        is_sound = conjunction([F.coalesce(is_complete, F.lit(False)), *(~condition for _, condition in wrong)])
        reasons = [F.when(condition, F.lit(f"{name} is not {self.schema[name].dataType.simpleString()}")) for name, condition in wrong]
        return self.mark_faults(parsed, columns, is_sound, F.coalesce(*reasons, F.lit("not a JSON object of these columns' types")))

    def _find_infinite(self, record: Column) -> Iterator[tuple[str, Column]]:
        """The columns with floats, and for each whether a record has one that is too large: none is, where an option names infinity."""
        if is_on(self.options, "allownonnumericnumbers"):
            return
        for field in self.record_schema:
            condition = is_infinite(record[field.name], field.dataType)
            if condition is not None:
                yield field.name, F.col(LARGE) & condition

    def _find_strange_decimals(self, parsed: DataFrame, text: Column, settings: Options) -> tuple[DataFrame, list[tuple[str, Column]]]:
        """The records, and by column, whether a decimal in quotes is no number. With a `locale`, decimals are written as there.

        Spark does not tell how a decimal was written, so records that may have one are parsed once more, with texts in its place."""
        texts, record = decimals_as_text(self.record_schema), F.get(F.col(REREAD)[VALUES], F.lit(0))
        assert isinstance(texts, T.StructType)
        conditions = [(field.name, is_no_decimal(record[field.name], field.dataType)) for field in self.record_schema]
        strange = [(name, condition) for name, condition in conditions if condition is not None]
        if not strange or "locale" in settings:
            return parsed, []
        reread = F.from_json(F.when(F.col(STRANGE), text), _array_schema(texts), settings)
        return parsed.withColumn(REREAD, reread), strange


def _array_schema(schema: T.StructType) -> T.StructType:
    """The schema of an array of a record's columns, before an element that marks its end."""
    element = T.StructType([*schema, T.StructField(END, T.IntegerType())])
    return T.StructType([T.StructField(VALUES, T.ArrayType(element)), T.StructField(CORRUPT, T.StringType())])


LARGE_NUMBER = r'[eE]\+?[0-9]{2}|[0-9]{29}|"[+-]?(?:INF|Inf)'
"""In the text of every record with a float that Spark reads as infinite. For RE2, as the next."""
STRANGE_DECIMAL = rf'"[0-9+.eE,-]*(?:[0-9][0-9+.eE,-]*,|,[0-9+.eE,-]*[0-9])[0-9+.eE,-]*"|"[0-9+.eE,-]*\\u|{DIGITS}'
"""In the text of every record with a decimal in quotes that has commas or digits of other scripts."""
Leaf = Callable[[Column, T.DataType], Column | None]


def is_infinite(value: Column, kind: T.DataType) -> Column | None:
    """Whether a float in a value of that type is infinite; None if it contains no floats."""
    return _any_in(value, kind, _is_infinite)


def is_no_decimal(value: Column, kind: T.DataType) -> Column | None:
    """Whether a decimal in a value is no number; None if it contains no decimals. The value has the type of `decimals_as_text`."""
    return _any_in(value, kind, _is_no_decimal)


def decimals_as_text(kind: T.DataType) -> T.DataType:
    """The type with text in place of each decimal."""
    match kind:
        case T.DecimalType():
            return T.StringType()
        case T.ArrayType():
            return T.ArrayType(decimals_as_text(kind.elementType))
        case T.MapType():
            return T.MapType(kind.keyType, decimals_as_text(kind.valueType))
        case T.StructType():
            return T.StructType([T.StructField(field.name, decimals_as_text(field.dataType)) for field in kind])
    return kind


def _is_infinite(value: Column, kind: T.DataType) -> Column | None:
    return F.abs(value) == float("inf") if isinstance(kind, T.DoubleType | T.FloatType) else None


def _is_no_decimal(text: Column, kind: T.DataType) -> Column | None:
    return ~text.rlike(pattern(kind)) if isinstance(kind, T.DecimalType) else None


def _any_in(value: Column, kind: T.DataType, leaf: Leaf) -> Column | None:
    """Whether `leaf` holds for anything in the value; None if it is None for all types in the type."""
    match kind:
        case T.ArrayType():
            return _any_element(value, kind.elementType, leaf)
        case T.MapType():
            return _any_element(F.map_values(value), kind.valueType, leaf)
        case T.StructType():
            inner = [_any_in(value[field.name], field.dataType, leaf) for field in kind]
            conditions = [column for column in inner if column is not None]
            return disjunction(conditions) if conditions else None
    condition = leaf(value, kind)
    return None if condition is None else F.coalesce(condition, F.lit(False))


def _any_element(values: Column, kind: T.DataType, leaf: Leaf) -> Column | None:
    def condition(element: Column) -> Column:
        inner = _any_in(element, kind, leaf)
        return F.lit(False) if inner is None else inner

    has_leaves = _any_in(F.lit(None), kind, leaf) is not None
    return F.coalesce(F.exists(values, condition), F.lit(False)) if has_leaves else None
