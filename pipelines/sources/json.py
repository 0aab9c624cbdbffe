"""JSON: records as columns, each parsed alone and strictly. A file has one per line, or with `multiLine` is a document."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from pipelines.sources.parsed import CORRUPT, END, OURS, PERMISSIVE, VALUES, apart, sound
from pipelines.sources.records import Dialect
from pipelines.sources.text_table import TextTable, encoding_of, is_on


class Json(TextTable):
    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_of(self.options), json=True, whole=is_on(self.options, "multiline"))

    def parse(self, records: DataFrame) -> DataFrame:
        """Spark ignores text after the first value. So the record is put into an array, before an element that
        marks the end, on a line of its own after a comment: the record is valid if that element is the second one."""
        allowed = {name: value for name, value in self.options.items() if name not in OURS}
        settings = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **allowed, **PERMISSIVE}
        element = StructType([*self.schema.fields, StructField(END, IntegerType())])
        wrapped = StructType([StructField(VALUES, ArrayType(element)), StructField(CORRUPT, StringType())])
        text = F.concat(F.lit(f'{{"{VALUES}":['), sound(records), F.lit(f'\n,{{"{END}":1}}]}}'))
        parsed = records.withColumn(VALUES, F.from_json(text, wrapped, settings))
        elements = F.col(VALUES)[VALUES]
        record, mark = F.get(elements, F.lit(0)), F.get(elements, F.lit(1))
        whole = F.col(VALUES)[CORRUPT].isNull() & (F.size(elements) == 2) & (mark[END] == 1) & record.isNotNull()
        return apart(parsed, self.schema, record, F.coalesce(whole, F.lit(False)), F.lit("not a JSON object of these columns' types"))
