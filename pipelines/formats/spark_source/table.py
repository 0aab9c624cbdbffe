"""Any source on Spark's class path, or a table of its catalogs, as Spark reads it.

Rows that no snapshot identifies may change at any time. So they are kept on the executors' disks when they are hashed, which is when they
are read for the first time, and are hashed again at the end: Spark reads those of an executor that died anew."""

import os
from functools import cached_property
from hashlib import sha256

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.config.paths import absolute_path, home
from pipelines.data.sources.base import RawTable, Rows
from pipelines.data.sources.source_errors import error_messages, lockstep_error, summary_line
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.spark_source.frame_hash import hash_frame
from pipelines.formats.spark_source.settings import SparkTable


class SparkSource(RawTable[SparkTable]):
    _frame: DataFrame | None = None
    _content: tuple[int, str] | None = None
    """The number of rows and their hash, once they were read."""

    def empty(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self._open(spark).schema)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        if self.settings.snapshot:
            return (SourceFile(self.settings.place, 0, f"spark:{self._snapshot_digest(self._open(spark))}"),)
        if self._content is None:
            self._frame = self._open(spark).persist(StorageLevel.DISK_ONLY)
            self._content = hash_frame(self._frame)
        return (SourceFile(self.settings.place, 0, f"rows:{self._content[1]}"),)

    def rows(self, spark: SparkSession) -> Rows:
        self.identity(spark)
        return Rows(self._open(spark), None if self._content is None else self._content[0])

    def state(self) -> tuple[SourceFile, ...]:
        """Empty. Raises SourceError if rows that were read are other ones now."""
        if self._frame is not None and self._content is not None and hash_frame(self._frame) != self._content:
            raise SourceError(
                f"{self.settings.place} changed while being read, when Spark read a part of it again; run again, or name a snapshot of it"
            )
        return ()

    def _open(self, spark: SparkSession) -> DataFrame:
        """The rows, which Spark reads later. Raises SourceError if it cannot open the source."""
        if self._frame is None:
            try:
                reader = spark.read.options(**self._options)
                self._frame = reader.table(self.settings.table) if self.settings.table else reader.format(self.settings.source).load()
            except (PySparkException, Py4JJavaError) as error:
                messages = error_messages(error)
                raise lockstep_error(messages) or SourceError(
                    f"Spark cannot open {self.settings.place}: {summary_line(messages)}; correct source, table and options, and put the "
                    "source's package on the class path, as spark-submit --jars does"
                ) from error
        return self._frame

    @cached_property
    def _options(self) -> dict[str, str]:
        options = {}
        for name, value in self.settings.options.items():  # in their case, which a driver of JDBC may mind
            text = str(value).lower() if isinstance(value, bool) else str(value)
            options[name] = absolute_path(text, home()) if name.lower() == "path" else text
        for option, variable in self.settings.variables.items():
            if variable not in os.environ:
                raise ConfigError(
                    f"source.tables.{self.name}.options_from: {option} is to be in the environment variable {variable}, which is not set; "
                    f"set it, as export {variable}=…"
                )
            options[option] = os.environ[variable]
        return options

    def _snapshot_digest(self, rows: DataFrame) -> str:
        """A digest of the snapshot's name, its columns, and the names of its files: a table that is dropped and made anew begins again with
        version 0, with files of other names. Without files, a place that is the same stands for them."""
        files = sorted(path.rpartition("/")[2] for path in rows.inputFiles())
        place = files or [str(self.settings.place)]
        return sha256("\n".join([self.settings.source, self.settings.snapshot, rows.schema.json(), *place]).encode()).hexdigest()
