"""Parquet: Spark reads it in place, after a check of its footers, since it has no malformed records."""

from collections.abc import Collection, Iterator

from pyspark.sql import DataFrame, SparkSession

from pipelines.dataset.sources import SourceFile
from pipelines.errors import SourceError
from pipelines.sources import files
from pipelines.sources.base import Rows
from pipelines.sources.file_table import hive_folders
from pipelines.sources.footers import check_rows, damage, reader_failed
from pipelines.sources.parsed import schema_of
from pipelines.sources.spark_files import SparkFiles


class Parquet(SparkFiles):
    def empty(self, spark: SparkSession) -> DataFrame:
        reader = self.reader(spark)
        declared = reader.schema(schema_of(self.name, self.settings.ddl)) if self.settings.ddl else reader
        return declared.load(list(self.settings.paths))

    def rows(self, spark: SparkSession) -> Rows:
        """Parquet needs no parsing, so its rows are not cached."""
        paths = list(self.settings.paths)
        # Any schema will do for a list of files, and saves Spark from inferring one.
        self.listed(self.reader(spark).schema("_ int").load(paths))
        rows = self.reader(spark).load(paths)
        if self.settings.ddl:
            schema = schema_of(self.name, self.settings.ddl)
            if missing := [column for column in schema.names if column.lower() not in {known.lower() for known in rows.columns}]:
                raise SourceError(f"{self.settings.path} has no column {', '.join(missing)}; it has {', '.join(rows.columns)}")
            rows = self.reader(spark).schema(schema).load(paths)
        return Rows(rows, check_rows(spark, rows, one_schema=self.options.get("mergeschema", "").lower() != "true"))

    def reader_failed(self, error: Exception) -> bool:
        return reader_failed(error)

    def damage(self, spark: SparkSession) -> str:
        return damage(spark, [file.path for file in files.find(self.settings.paths)])

    def named_by(self, found: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """Checksums with Hive folders, which make columns, and with paths if a statement reads them."""
        asked = any("_metadata" in sql.lower() for sql in statements)
        yield from (f"{checksum} {name if asked else hive_folders(name)}".rstrip() for checksum, name in self.names(found))
