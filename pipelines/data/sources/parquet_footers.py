"""Reads the footers of Parquet files with Arrow, before Spark reads the files: for the columns of each, and whether it is sound.

Spark decompresses any size that a page declares, so that a file of 4 KB can demand 2 GiB, and skips row groups that lie outside the file.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.messages.words import name_list
from pipelines.data.sources.base import distribute
from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.errors import SourceError

FILES_PER_TASK = 64
NULL, NANOSECONDS, NANOSECONDS_UTC = "null", "timestamp[ns]", "timestamp[ns, UTC]"
ALIKE = "alike"
"""Stands for the kinds of columns of one file whose names differ in case alone."""
UNREADABLE = {"time32[ms]": "int32", "time64[us]": "int64", "time64[ns]": "int64", "float16": "float32"}
"""Kinds of columns that Spark does not read, and what to write instead."""
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
# The best codecs stay far below on real columns; dictionaries and run lengths do not count as compression here.
CHUNK_BYTES, COMPRESSION = 256 * 2**20, 1000
_READER = re.compile(r"org\.apache\.parquet|datasources\.parquet")
"""Packages of Spark's Parquet reader, in a Java stack trace."""


@dataclass(frozen=True)
class FileColumns:
    path: str
    leaves: dict[str, dict[str, str]]
    """By column, in the file's order: the kind of each of its leaves. A column that is not nested has one leaf, of its name."""

    def each_leaf(self) -> Iterator[tuple[str, str, str]]:
        """Column, path and kind of each leaf."""
        yield from ((name, path, kind) for name, leaves in self.leaves.items() for path, kind in leaves.items())

    def kind(self, name: str) -> str:
        """The kind of a column that is not nested; empty for others, and for columns that are not there."""
        return self.leaves.get(name, {}).get(name, "")


def file_columns(spark: SparkSession, paths: Sequence[str]) -> list[FileColumns]:
    """The columns of every file, by lower-case name. Few files are opened here, and many in tasks. Raises SourceError naming the file if
    one is not Parquet."""
    if len(paths) <= FILES_PER_TASK:
        with ThreadPoolExecutor(8) as pool:
            files = list(pool.map(_read_columns, paths))
    else:
        rows = distribute(spark, _tasks(paths), _read_columns_of_files, "path string, columns string").collect()
        files = sorted((row.path, row.columns) for row in rows)
    return [FileColumns(path, json.loads(columns)) for path, columns in files]


def _tasks(paths: Sequence[str]) -> list[list[str]]:
    return [list(paths[start : start + FILES_PER_TASK]) for start in range(0, len(paths), FILES_PER_TASK)]


def _read_columns_of_files(paths: list[str]) -> Iterator[pa.RecordBatch]:
    files = [_read_columns(path) for path in paths]
    yield pa.RecordBatch.from_pydict({"path": [path for path, _ in files], "columns": [columns for _, columns in files]})


def column_kind(files: Sequence[FileColumns], name: str) -> str:
    """The kind of a column in files where it has only one."""
    return next((kind for file in files if (kind := file.kind(name))), "")


def is_nanoseconds(kind: str) -> bool:
    return kind in (NANOSECONDS, NANOSECONDS_UTC)


def check_readable(files: Iterable[FileColumns], declared: Mapping[str, str] | None) -> None:
    """Raises SourceError for a column that Spark cannot read. `declared` are the types in the config's schema, if it has one."""
    without = "leave it out of the table's schema" if declared is not None else "give the table a schema without it"
    for file in files:
        for name, path, kind in file.each_leaf():
            sql_type = None if declared is None else declared.get(name)
            if kind == ALIKE:
                names = " and ".join(file.leaves[name])
                raise SourceError(
                    f"{file.path}: columns {names} are one to Spark, which ignores case; {without}, or rename one in the file"
                )
            if kind in UNREADABLE:
                fault = ""
            elif is_nanoseconds(kind) and path == name and sql_type not in (None, "timestamp", "timestamp_ntz", "bigint"):
                fault = f" as {sql_type}, but as timestamp_ntz or bigint"
            elif is_nanoseconds(kind) and path != name and (sql_type is None or "timestamp" in sql_type):
                fault = " inside another column"
            else:
                continue
            instead = f"write it as {UNREADABLE.get(kind, 'timestamp[us]')}"
            raise SourceError(f"{file.path}: column {path} is {kind}, which Spark does not read{fault}; {without}, or {instead}")


def check_same_columns(files: Sequence[FileColumns]) -> None:
    """Raises SourceError if two files have different columns, or nested columns that differ. Other types may be widened."""
    if not files:
        return
    typed: dict[str, FileColumns] = {}
    for file in files:  # the first that has a kind for a column: one that is NULL in all rows of a file may have any kind elsewhere
        typed |= {name: file for name in file.leaves if name not in typed or typed[name].kind(name) == NULL}
    first = _comparable(files[0], typed)
    for file in files[1:]:
        if differing := sorted(_comparable(file, typed) ^ first):
            places = dict.fromkeys(place for place, _ in differing)
            kinds = {(name, path): kind for columns in (*typed.values(), file) for name, path, kind in columns.each_leaf()}
            listing = name_list([f"{place[1]} {kinds[place]}" for place in places])
            other = next((typed[name] for name, _ in places if typed[name] is not file), files[0])
            merge = "" if len(places) < len(differing) else ", or set options: {mergeSchema: true} to have NULL where one is missing"
            raise SourceError(f"{file.path} and {other.path} differ in their columns: {listing}; make them tables of their own{merge}")


def _comparable(file: FileColumns, typed: Mapping[str, FileColumns]) -> set[tuple[tuple[str, str], str]]:
    """The leaves with their kinds; without the kind of columns that are not nested, and as in `typed` for those that are NULL."""
    columns = [(name, typed[name] if file.kind(name) == NULL else file) for name in file.leaves]
    return {((name, path), "" if path == name else kind) for name, source in columns for path, kind in source.leaves[name].items()}


def group_by_types(files: Sequence[FileColumns]) -> list[list[FileColumns]]:
    """Group files so that in a group no column that is not nested has two kinds, and none is nested in some files only."""
    names = dict.fromkeys(name for file in files for name in file.leaves)
    kinds = {name: {_kind_of_column(file, name) for file in files} - {""} for name in names}
    differing = [name for name in names if len(kinds[name]) > 1]
    groups: dict[tuple[str, ...], list[FileColumns]] = {}
    for file in files:
        groups.setdefault(tuple(_kind_of_column(file, name) for name in differing), []).append(file)
    return list(groups.values())


def _kind_of_column(file: FileColumns, name: str) -> str:
    """As `FileColumns.kind`, and `nested` for columns that are."""
    return file.kind(name) or ("nested" if name in file.leaves else "")


def _read_columns(path: str) -> tuple[str, str]:
    """The path, and the leaves by column as JSON."""

    def leaves(kind: pa.DataType) -> int:
        """The number of a column's leaves."""
        stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        return sum(leaves(stored.field(number).type) for number in range(stored.num_fields)) or 1

    with file_errors(path), open_file(path) as stream:
        file = pq.ParquetFile(stream)
        schema, fields = file.schema, file.schema_arrow
    columns: dict[str, dict[str, str]] = {name.lower(): {} for name in fields.names}
    # Leaves come in the order of their columns. Their paths do not tell whose they are: a column's name may have a dot.
    tops = [field.name for field in fields for _ in range(leaves(field.type))]
    for number, top in enumerate(tops):
        leaf = schema.column(number)
        columns[top.lower()][leaf.path.lower() if leaf.path == top else leaf.path] = _kind(leaf)
    for name, count in Counter(name.lower() for name in fields.names).items():
        if count > 1:
            columns[name] = dict.fromkeys((top for top in fields.names if top.lower() == name), ALIKE)
    return path, json.dumps(columns)


def _kind(leaf: pq.ColumnSchema) -> str:
    """The logical type of a leaf as Arrow writes it, or else its physical type."""
    logical: dict[str, Any] = json.loads(leaf.logical_type.to_json())
    match logical["Type"]:
        case "Null":
            return NULL
        case "Float16":
            return "float16"
        case "Timestamp":
            return f"timestamp[{_UNITS[logical['timeUnit']]}{', UTC' if logical['isAdjustedToUTC'] else ''}]"
        case "Time":
            unit = _UNITS[logical["timeUnit"]]
            return f"time{32 if unit == 'ms' else 64}[{unit}]"
        case "Int":
            return f"{'' if logical['isSigned'] else 'u'}int{logical['bitWidth']}"
        case "Decimal":
            return f"decimal({logical['precision']}, {logical['scale']})"
        case "None":
            return str(leaf.physical_type)
        case other:
            return str(other).lower()


def check_rows(spark: SparkSession, rows: DataFrame) -> int:
    """The number of rows in the files of `rows`. Raises SourceError naming the file if one is no Parquet file, would decompress to too many
    bytes, or hides row groups from Spark."""
    files = distribute(spark, _tasks(sorted(rows.inputFiles())), _count_rows, "path string, rows long").collect()
    promised = {file.path: file.rows for file in files}
    total = sum(file.rows for file in files)
    if rows.count() != total:  # Spark skips a row group whose offset in the footer lies outside the file
        counts = {row.path: row["count"] for row in rows.groupBy(F.col("_metadata.file_path").alias("path")).count().collect()}
        path = next(path for path in promised if counts.get(path, 0) != promised[path])
        raise SourceError(
            f"{path} promises {promised[path]:,} rows, and Spark finds {counts.get(path, 0):,}: its footer is corrupt; write the file again"
        )
    return total


def _count_rows(paths: list[str]) -> Iterator[pa.RecordBatch]:
    """One batch of (path, rows), of files that are sound."""
    counts = []
    for path in paths:
        with file_errors(path), open_file(path) as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            footer = file.metadata
            groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
            for chunk in (group.column(number) for group in groups for number in range(group.num_columns)):
                stored, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
                if unpacked > CHUNK_BYTES and unpacked > COMPRESSION * stored:
                    raise SourceError(
                        f"{path}: column {chunk.path_in_schema} asks for {unpacked:,} bytes of memory out of {stored:,} in the file; "
                        "if it is to be trusted, write it again in smaller row groups"
                    )
            leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
            # Spark does not check repetition levels, and makes wrong lists of corrupt ones; Arrow checks them.
            for _ in file.iter_batches(columns=[leaf.path for leaf in leaves if leaf.max_repetition_level]):
                pass
        counts.append({"path": path, "rows": sum(group.num_rows for group in groups)})
    yield pa.RecordBatch.from_pylist(counts, schema=pa.schema({"path": pa.string(), "rows": pa.int64()}))


def reader_failed(error: Exception) -> bool:
    """Whether the stack trace of Spark's error shows its Parquet reader."""
    return _READER.search(str(error)) is not None


def damage(spark: SparkSession, names: list[str]) -> str:
    """Arrow's message for the first of these Parquet files that it cannot decode; empty if it can decode all. Spark's reader trusts a file,
    and fails on a damaged one with an arbitrary Java exception."""
    problems = distribute(spark, _tasks(names), _find_damage, "problem string").collect()
    return min((row.problem for row in problems), default="")


def _find_damage(paths: list[str]) -> Iterator[pa.RecordBatch]:
    problems = []
    for path in paths:
        try:
            with file_errors(path), open_file(path) as stream:
                for _ in pq.ParquetFile(stream, page_checksum_verification=True).iter_batches():
                    pass
        except SourceError as error:
            problems.append(str(error))
    yield pa.RecordBatch.from_pydict({"problem": pa.array(problems, pa.string())})
