"""JSON: records as columns, each parsed alone and strictly. A file has one per line, or with `multiLine` is a document.

Spark reads some numbers that are none: floats that are too large, which become infinity, and decimals in quotes with commas or digits of
other scripts. These are found, and their records refused.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.data.sources.text.json_keys import Names, examine_keys, key_names
from pipelines.data.sources.text.parsed import CORRUPT, END, LARGE, OWN_OPTIONS, PERMISSIVE, REREAD, STRANGE, TEXT, VALUES, sound_record
from pipelines.data.sources.text.records import Dialect
from pipelines.data.sources.text.text_table import Examiner, TextTable, encoding_name, is_on
from pipelines.data.sources.text.type_checks import DIGITS, Values, any_misfit, first_misfit, pattern

_NOT_JSON = ("allowsinglequotes", "allowunquotedfieldnames", "allowcomments")
LARGE_NUMBER = r'[eE]\+?[0-9]{2}|[0-9]{29}|"[+-]?(?:INF|Inf)'
"""In the text of every record with a float that Spark reads as infinite. For RE2, as the next."""
STRANGE_DECIMAL = rf'"[0-9+.eE,-]*(?:[0-9][0-9+.eE,-]*,|,[0-9+.eE,-]*[0-9])[0-9+.eE,-]*"|"[0-9+.eE,-]*\\u|{DIGITS}'
"""In the text of every record with a decimal in quotes that has commas or digits of other scripts."""
Leaf = Callable[[Column, T.DataType], Column | None]


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
        """Expressions for records that may have an infinite float or a strange decimal."""
        kinds = [field.dataType for field in self.record_schema]
        large = {LARGE: LARGE_NUMBER} if any(map(has_floats, kinds)) else {}
        return {**large, **({STRANGE: STRANGE_DECIMAL} if any(map(has_decimals, kinds)) else {})}

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
        decimals: Values = {}
        strange = [field for field in self.record_schema if has_decimals(field.dataType)]
        if strange and "locale" not in settings:  # else decimals are written as there
            # Spark does not tell how a decimal was written, so records that may have one are parsed once more, with texts in its place.
            texts = decimals_as_text(self.record_schema)
            assert isinstance(texts, T.StructType)
            parsed = parsed.withColumn(REREAD, F.from_json(F.when(F.col(STRANGE), text), _array_schema(texts), settings))
            reread = F.get(F.col(REREAD)[VALUES], F.lit(0))
            decimals = {field.name: (reread[field.name], field.dataType) for field in strange}
        floats: Values = {}
        if not is_on(self.options, "allownonnumericnumbers"):  # which names infinity
            floats = {field.name: (record[field.name], field.dataType) for field in self.record_schema if has_floats(field.dataType)}
        is_large = F.col(LARGE) if floats else F.lit(False)
        is_infinite, is_strange = is_large & any_misfit(floats, has_infinite), any_misfit(decimals, has_no_decimal)
        is_sound = F.coalesce(is_complete, F.lit(False)) & ~is_infinite & ~is_strange
        reasons = F.when(is_large, first_misfit(floats, has_infinite)), first_misfit(decimals, has_no_decimal)
        return self.mark_faults(parsed, columns, is_sound, F.coalesce(*reasons, F.lit("not a JSON object of these columns' types")))


def _array_schema(schema: T.StructType) -> T.StructType:
    """The schema of an array of a record's columns, before an element that marks its end."""
    element = T.StructType([*schema, T.StructField(END, T.IntegerType())])
    return T.StructType([T.StructField(VALUES, T.ArrayType(element)), T.StructField(CORRUPT, T.StringType())])


def has_floats(kind: T.DataType) -> bool:
    return _any_in(F.lit(None), kind, _is_infinite) is not None


def has_decimals(kind: T.DataType) -> bool:
    return _any_in(F.lit(None), kind, _is_no_decimal) is not None


def has_infinite(value: Column, kind: T.DataType) -> Column:
    """Whether a float in a value of that type is infinite."""
    return _or_false(_any_in(value, kind, _is_infinite))


def has_no_decimal(value: Column, kind: T.DataType) -> Column:
    """Whether a decimal in a value is no number. The value has the type of `decimals_as_text`."""
    return _or_false(_any_in(value, kind, _is_no_decimal))


def decimals_as_text(kind: T.DataType) -> T.DataType:
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
            values, inner_kind = value, kind.elementType
        case T.MapType():
            values, inner_kind = F.map_values(value), kind.valueType
        case T.StructType():
            inner = [_any_in(value[field.name], field.dataType, leaf) for field in kind]
            conditions = [column for column in inner if column is not None]
            return reduce(or_, conditions) if conditions else None
        case _:
            condition = leaf(value, kind)
            return None if condition is None else F.coalesce(condition, F.lit(False))
    if _any_in(F.lit(None), inner_kind, leaf) is None:
        return None
    return F.coalesce(F.exists(values, lambda element: _or_false(_any_in(element, inner_kind, leaf))), F.lit(False))


def _or_false(condition: Column | None) -> Column:
    return F.lit(False) if condition is None else condition
