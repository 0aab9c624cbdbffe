"""JSON: records as columns, each parsed alone and strictly. A file has one per line, or with `multiLine` is a document."""

from collections.abc import Iterator
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from pipelines.data.sources.json_keys import examined
from pipelines.data.sources.json_names import Names, names_in
from pipelines.data.sources.json_numbers import LARGE_NUMBER, STRANGE_DECIMAL, is_infinite, is_no_decimal, with_texts
from pipelines.data.sources.parsed import AGAIN, CORRUPT, END, LARGE, OURS, PERMISSIVE, STRANGE, TEXT, VALUES, Options, sound
from pipelines.data.sources.records import Dialect
from pipelines.data.sources.text_table import Examiner, TextTable, encoding_of, is_on

_NOT_JSON = ("allowsinglequotes", "allowunquotedfieldnames", "allowcomments")


class Json(TextTable):
    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_of(self.options), json=True, whole=is_on(self.options, "multiline"))

    @property
    def examiner(self) -> Examiner | None:
        """None with options for text that is not JSON, where strings before colons are not all of the keys."""
        if any(is_on(self.options, option) for option in _NOT_JSON):
            return None
        return partial(examined, Names({field.name: names_in(field.dataType) for field in self.record_schema}))

    @property
    def looks(self) -> dict[str, str]:
        """For what `_infinite` and `_with_strange` need."""
        of_types = [(field.dataType, F.lit(None)) for field in self.record_schema]
        has_floats = any(is_infinite(value, kind) is not None for kind, value in of_types)
        has_decimals = any(is_no_decimal(value, kind) is not None for kind, value in of_types)
        return {**({LARGE: LARGE_NUMBER} if has_floats else {}), **({STRANGE: STRANGE_DECIMAL} if has_decimals else {})}

    def parse(self, records: DataFrame) -> DataFrame:
        """Spark ignores text after the first value. So the record is put into an array, before an element that
        marks the end, on a line of its own after a comment: the record is valid if that element is the second one."""
        allowed = {name: value for name, value in self.options.items() if name not in OURS}
        settings = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **allowed, **PERMISSIVE}
        parsed_text = F.coalesce(F.col(TEXT), sound(records)) if self.examiner else sound(records)
        text = F.concat(F.lit(f'{{"{VALUES}":['), parsed_text, F.lit(f'\n,{{"{END}":1}}]}}'))
        parsed = records.withColumn(VALUES, F.from_json(text, _wrapped(self.record_schema), settings))
        elements = F.col(VALUES)[VALUES]
        record, mark = F.get(elements, F.lit(0)), F.get(elements, F.lit(1))
        whole = F.col(VALUES)[CORRUPT].isNull() & (F.size(elements) == 2) & (mark[END] == 1) & record.isNotNull()
        columns = {name: record[name] for name in self.record_schema.names}
        parsed, strange = self._with_strange(parsed, text, settings)
        wrong = [*self._infinite(record), *strange]
        is_sound = reduce(and_, [F.coalesce(whole, F.lit(False)), *(~condition for _, condition in wrong)])
        named = [F.when(condition, F.lit(f"{name} is not {self.schema[name].dataType.simpleString()}")) for name, condition in wrong]
        return self.apart(parsed, columns, is_sound, F.coalesce(*named, F.lit("not a JSON object of these columns' types")))

    def _infinite(self, record: Column) -> Iterator[tuple[str, Column]]:
        """By column, whether a record has a float that is too large in it. None is, where an option names infinity."""
        if is_on(self.options, "allownonnumericnumbers"):
            return
        for field in self.record_schema:
            condition = is_infinite(record[field.name], field.dataType)
            if condition is not None:
                yield field.name, F.col(LARGE) & condition

    def _with_strange(self, parsed: DataFrame, text: Column, settings: Options) -> tuple[DataFrame, list[tuple[str, Column]]]:
        """The records, and by column, whether a decimal in quotes is no number. Those of a `locale` are written as there.

        Spark does not tell how a decimal was written, so records that may have one are parsed once more, with texts in its place."""
        texts, record = with_texts(self.record_schema), F.get(F.col(AGAIN)[VALUES], F.lit(0))
        assert isinstance(texts, StructType)
        conditions = [(field.name, is_no_decimal(record[field.name], field.dataType)) for field in self.record_schema]
        strange = [(name, condition) for name, condition in conditions if condition is not None]
        if not strange or "locale" in settings:
            return parsed, []
        again = F.from_json(F.when(F.col(STRANGE), text), _wrapped(texts), settings)
        return parsed.withColumn(AGAIN, again), strange


def _wrapped(schema: StructType) -> StructType:
    """The columns of a record in an array, before an element that marks its end."""
    element = StructType([*schema, StructField(END, IntegerType())])
    return StructType([StructField(VALUES, ArrayType(element)), StructField(CORRUPT, StringType())])
