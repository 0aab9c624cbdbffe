"""ORC: Spark reads the files in place, after a check of their footers, since they have no malformed records."""

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from pipelines.data.sources.base import Rows
from pipelines.data.sources.files.folder_columns import check_values, folder_columns, resolve_types
from pipelines.data.sources.files.spark_files import SparkFiles
from pipelines.data.sources.text.parsed import parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError
from pipelines.formats.orc.footers import check_equal_columns, read_footers


class Orc(SparkFiles):
    def empty(self, spark: SparkSession) -> DataFrame:
        """The table itself, whose rows are read only after its files are checked."""
        read_footers(spark, [self.files[0].path])  # a file that is none, before Spark looks for its columns
        reader = self.reader(spark)
        if self.settings.ddl:
            reader = reader.schema(parse_schema(self.name, self.settings.ddl))
        return reader.load(list(self.load_paths or self.settings.paths))

    def rows(self, spark: SparkSession) -> Rows:
        rows = self.empty(spark)
        self.count_files(rows)
        schema = parse_schema(self.name, self.settings.ddl) if self.settings.ddl else None
        folders = folder_columns(self.settings.place, self.files)
        if schema is not None:
            check_values(spark, self.settings.place, self.files, resolve_types(folders, schema))
        footers = read_footers(spark, [file.path for file in self.files])
        folder_names = {name.lower() for name in folders}
        check_equal_columns(footers, [name for name in schema.names if name.lower() not in folder_names] if schema is not None else [])
        count = sum(footer.rows for footer in footers)
        if not count:
            raise SourceError(f"{self.settings.place} holds no rows; give a path that does")
        return Rows(rows, count)

    def reader_failed(self, error: Exception) -> bool:
        return "org.apache.orc" in str(error) or "datasources.orc" in str(error)

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """Checksums with the folders that make columns, and with names if a statement reads them."""
        yield from self.content_lines(files, with_names=any("_metadata" in sql.lower() for sql in statements))
