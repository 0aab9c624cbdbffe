"""Tables of files: found by their paths, and identified by their bytes."""

import posixpath
import re
from functools import cached_property
from typing import TypeVar

from pyspark.sql import SparkSession

from pipelines.config.source import FileTableSettings
from pipelines.data.sources import files
from pipelines.data.sources.base import RawTable
from pipelines.data.sources.checksums import checksums, stats
from pipelines.data.sources.files import File
from pipelines.data.versions.sources import SourceFile

Settings = TypeVar("Settings", bound=FileTableSettings)


class FileTable(RawTable[Settings]):
    """Checksums identify the bytes, independent of their location; a subclass whose rows contain paths adds them to `names`."""

    @cached_property
    def files(self) -> list[File]:
        """The table's files, listed once. Raises SourceError if a path matches none."""
        return files.find(self.settings.path)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return self.state() if self.settings.checksum == "stat" else checksums(spark, self.files)

    def state(self) -> tuple[SourceFile, ...]:
        return stats(files.find(self.settings.path))

    def would_hold(self, place: str) -> bool:
        return any(files.would_find(path, place) for path in self.settings.paths)

    def relative_name(self, path: str) -> str:
        """The path of one of the table's files relative to its folder, as `file_column` has it; the name of a single file."""
        name = posixpath.relpath(_normal(path), self._root)
        return posixpath.basename(_normal(path)) if name == "." else name

    @cached_property
    def _root(self) -> str:
        return posixpath.commonpath([_normal(files.glob_root(path)) for path in self.settings.paths])

    def content_lines(self, files: tuple[SourceFile, ...], with_names: bool) -> list[str]:
        """A line for each file, sorted: its checksum, its relative name if rows contain it, and the folders that make columns."""
        folders = {_normal(file.path): file.folders for file in self.files}
        names = [self.relative_name(file.path) if with_names else "" for file in files]
        parts = [(file.checksum, name, folders.get(_normal(file.path), "")) for file, name in zip(files, names, strict=True)]
        return sorted(" ".join(filter(None, part)) for part in parts)


def _normal(path: str) -> str:
    """A path or URI in a canonical form."""
    path = re.sub("^file:(//)?", "", path)
    return posixpath.abspath(f"/{path}" if "://" in path else path)
