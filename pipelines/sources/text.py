"""Lines of text, or with `wholetext` whole files: one column."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.sources.parsed import PROBLEM, file_of, origin, sound
from pipelines.sources.records import Dialect
from pipelines.sources.text_table import TextTable, encoding_of, is_on


class Text(TextTable):
    default_ddl = "value string"

    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_of(self.options), whole=is_on(self.options, "wholetext"), keep_blank=True)

    def parse(self, records: DataFrame) -> DataFrame:
        return records.select(sound(records).alias(self.schema.names[0]), *file_of(records), *origin(F.col(PROBLEM)))
