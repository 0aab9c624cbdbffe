"""JSON: records as columns, each parsed alone and strictly. A file has one per line, or with `multiLine` is a document."""

from functools import partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from pipelines.sources.json_keys import Names, examined, names_in
from pipelines.sources.json_numbers import LARGE, is_infinite
from pipelines.sources.parsed import CORRUPT, END, OURS, PERMISSIVE, RECORD, TEXT, VALUES, sound
from pipelines.sources.records import Dialect
from pipelines.sources.text_table import Examiner, TextTable, encoding_of, is_on

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

    def parse(self, records: DataFrame) -> DataFrame:
        """Spark ignores text after the first value. So the record is put into an array, before an element that
        marks the end, on a line of its own after a comment: the record is valid if that element is the second one."""
        allowed = {name: value for name, value in self.options.items() if name not in OURS}
        settings = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **allowed, **PERMISSIVE}
        element = StructType([*self.record_schema, StructField(END, IntegerType())])
        wrapped = StructType([StructField(VALUES, ArrayType(element)), StructField(CORRUPT, StringType())])
        parsed_text = F.coalesce(F.col(TEXT), sound(records)) if self.examiner else sound(records)
        text = F.concat(F.lit(f'{{"{VALUES}":['), parsed_text, F.lit(f'\n,{{"{END}":1}}]}}'))
        parsed = records.withColumn(VALUES, F.from_json(text, wrapped, settings))
        elements = F.col(VALUES)[VALUES]
        record, mark = F.get(elements, F.lit(0)), F.get(elements, F.lit(1))
        whole = F.col(VALUES)[CORRUPT].isNull() & (F.size(elements) == 2) & (mark[END] == 1) & record.isNotNull()
        columns = {name: record[name] for name in self.record_schema.names}
        wrong = self._infinite(record)
        is_sound = reduce(and_, [F.coalesce(whole, F.lit(False)), *(~found for found in wrong.values())])
        named = [F.when(found, F.lit(f"{name} is not {self.schema[name].dataType.simpleString()}")) for name, found in wrong.items()]
        return self.apart(parsed, columns, is_sound, F.coalesce(*named, F.lit("not a JSON object of these columns' types")))

    def _infinite(self, record: Column) -> dict[str, Column]:
        """By column, whether a record has a float that is too large in it. None is, where an option names infinity."""
        if is_on(self.options, "allownonnumericnumbers"):
            return {}
        found = {field.name: is_infinite(record[field.name], field.dataType) for field in self.record_schema}
        is_large = F.col(RECORD).rlike(LARGE)
        return {name: is_large & column for name, column in found.items() if column is not None}
