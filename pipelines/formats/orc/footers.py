"""The footers of ORC files, read with Arrow before Spark reads the files: columns, rows, and whether a file is sound.

Spark takes the columns of one file for all, and gives NULL for one that another file does not have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import orc
from pyspark.sql import SparkSession

from pipelines.config.messages.words import name_list
from pipelines.data.sources.base import distribute
from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.errors import SourceError

_FILES_PER_TASK = 64


@dataclass(frozen=True)
class Footer:
    path: str
    rows: int
    columns: tuple[str, ...]
    """Name and type of each."""


def read_footers(spark: SparkSession, paths: Sequence[str]) -> list[Footer]:
    """The footer of every file. Few are read here, and many in tasks. Raises SourceError naming the file if one is not ORC."""
    if len(paths) <= _FILES_PER_TASK:
        return [_read_footer(path) for path in paths]
    tasks = [list(paths[start : start + _FILES_PER_TASK]) for start in range(0, len(paths), _FILES_PER_TASK)]
    rows = distribute(spark, tasks, _read_in_task, "path string, rows long, columns array<string>").collect()
    return sorted((Footer(row.path, row.rows, tuple(row.columns)) for row in rows), key=lambda footer: footer.path)


def check_equal_columns(footers: Sequence[Footer], columns: Sequence[str]) -> None:
    """Raises SourceError if files differ in these `columns`, or in any if none is named, and if one of them is missing."""
    for footer in footers:
        names = [column.partition(" ")[0].lower() for column in footer.columns]
        if missing := [name for name in columns if name.lower() not in names]:
            raise SourceError(f"{footer.path} has no column {name_list(missing)}; it has {name_list(names)}")
        if differing := sorted(_select_columns(footer, columns) ^ _select_columns(footers[0], columns)):
            raise SourceError(
                f"{footer.path} and {footers[0].path} have not the same columns: {name_list(differing)}; give the table a schema of "
                "those that are alike, or make them tables of their own"
            )


def _select_columns(footer: Footer, columns: Sequence[str]) -> set[str]:
    names = {name.lower() for name in columns}
    return {column for column in footer.columns if not names or column.partition(" ")[0].lower() in names}


def _read_footer(path: str) -> Footer:
    with file_errors(path), open_file(path) as stream:
        file = orc.ORCFile(stream)
        return Footer(path, file.nrows, tuple(f"{field.name} {field.type}" for field in file.schema))


def _read_in_task(paths: list[str]) -> Iterator[pa.RecordBatch]:
    footers = [_read_footer(path) for path in paths]
    columns = pa.array([footer.columns for footer in footers], pa.list_(pa.string()))
    yield pa.record_batch(
        [pa.array([footer.path for footer in footers]), pa.array([footer.rows for footer in footers], pa.int64()), columns],
        names=["path", "rows", "columns"],
    )
