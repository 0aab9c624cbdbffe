"""Lines of text, or with `wholetext` whole files: one column."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from pipelines.data.sources.text.parsed import sound_record
from pipelines.data.sources.text.records import Dialect
from pipelines.data.sources.text.text_table import TextTable, encoding_name, is_on
from pipelines.errors import ConfigError


class Text(TextTable):
    default_ddl = "value string"

    def dialect(self) -> Dialect:
        return Dialect(encoding=encoding_name(self.options), whole_file=is_on(self.options, "wholetext"), keep_blank=True)

    def parse(self, records: DataFrame) -> DataFrame:
        """Raises ConfigError unless the records have one column, of text."""
        if [field.dataType for field in self.record_schema] != [StringType()]:
            raise ConfigError(
                f"source.tables.{self.name}.schema: text has one column, a string, besides those of folders (got {self.settings.ddl}); "
                "declare it as `value string`, and make numbers of it in the query"
            )
        return self.mark_faults(records, {self.record_schema.names[0]: sound_record(records)}, F.lit(True), F.lit(None))
