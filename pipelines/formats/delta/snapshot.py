"""Plans a version of a Delta table on the driver, with delta-rs: its columns, and its files with the rows that are deleted in each."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from pipelines.config.messages.words import name_list, verb_for
from pipelines.data.sources.files.content import locate
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.delta.log import list_log, version_at
from pipelines.formats.delta.place import Place

if TYPE_CHECKING:
    from deltalake import DeltaTable

READER_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""What a table may ask of its readers, and delta-rs and this format do."""
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True)
class DataFile:
    path: str
    """For `content.open_file`."""
    name: str
    """As the log writes it."""
    bytes: int
    rows: int | None
    """Rows in the file, also deleted ones; None where the log has no statistics."""
    deleted: np.ndarray | None
    """Positions of deleted rows in the file, in ascending order; None if there are none."""
    partition: Mapping[str, Any]
    """Values of the columns that are the same in all rows, and in no file."""

    @property
    def remaining_rows(self) -> int | None:
        return None if self.rows is None else self.rows - (0 if self.deleted is None else len(self.deleted))


@dataclass(frozen=True)
class Snapshot:
    """A version of a table."""

    place: Place
    table_id: str
    version: int
    columns: T.StructType
    """Names and types of the table; metadata of fields have the names and numbers by which files know them."""
    mapping: str
    """How files name columns: `none`, by their own names; `name`, by physical names; `id`, by numbers."""
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int | None:
        """The number of rows, if the log knows it."""
        counts = [file.remaining_rows for file in self.files]
        return None if None in counts else sum(cast(list[int], counts))

    @property
    def description(self) -> str:
        """How messages name the version."""
        return f"version {self.version} of {self.place.path}"

    @property
    def checksum(self) -> str:
        """The name of the version, with a digest of its columns, the names of its files and their deleted rows. It stays the same if the
        folder is moved. A copy that is written to has other names of files, although its ID and the numbers of its versions are equal."""
        digest = sha256(self.columns.json().encode())
        for file in sorted(self.files, key=lambda file: file.name):
            deleted = b"" if file.deleted is None else file.deleted.astype("<i8").tobytes()
            digest.update(f"\n{file.name} {len(deleted)} ".encode() + deleted)
        return f"delta:{self.table_id}@{self.version}:{digest.hexdigest()}"


def check_deltalake(where: str) -> None:
    """Raises ConfigError, about what is at `where` of the config or the file system, unless deltalake is installed."""
    if find_spec("deltalake") is None:
        raise ConfigError(f"{where}: Delta Lake needs deltalake, which is not installed; pip install 'lockstep-pipelines[delta]'")


def open_snapshot(path: str, version: int | None = None, timestamp: str = "") -> Snapshot:
    """The version of this number, or the latest at this moment, or the latest. Raises SourceError if there is none, or if the table needs
    more of its readers than this one does."""
    place = Place(path)
    log = list_log(place)
    if log is None:
        raise SourceError(_no_table(place))
    if timestamp:
        version = version_at(log, timestamp)
    if version is not None and not log.first <= version <= log.last:
        rule = f"its versions go up to {log.last}" if version > log.last else f"the earliest that its log still has is {log.first}"
        raise SourceError(f"{path} has no version {version}; {rule}, so name one of {log.first} to {log.last}")
    table = _load(place, version)
    columns, mapping = _columns(table, place)
    return Snapshot(place, str(table.metadata().id), table.version(), columns, mapping, tuple(_data_files(table, place)))


def _no_table(place: Place) -> str:
    from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

    filesystem, folder = locate(place.path)
    if filesystem.get_file_info(folder).type != FileType.Directory:
        return f"{place.path}: no such folder; give the folder of a Delta table, which holds _delta_log"
    entries = filesystem.get_file_info(FileSelector(folder, recursive=True))
    if any(entry.path.endswith(".parquet") for entry in entries):
        return f"{place.path} is a folder of Parquet files and no Delta table, since it has no _delta_log; set format: parquet"
    return f"{place.path} is no Delta table, since it has no _delta_log with commits; give the folder of a table"


def _load(place: Place, version: int | None) -> "DeltaTable":
    from deltalake import DeltaTable  # noqa: PLC0415, only who reads Delta Lake has it installed

    if "://" not in place.uri and unquote(place.uri) != place.uri:
        raise SourceError(f"{place.path} has % in its name, which delta-rs decodes as in a URL; rename the folder, or name a link to it")
    with _log_errors(place):
        table = DeltaTable(place.uri, version=version, storage_options=place.storage_options or None)
    _check_features(table, place)
    return table


@contextmanager
def _log_errors(place: Place) -> Iterator[None]:
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceError(
            f"{place.path}: delta-rs cannot read its log ({reason}); mend the table, or read it with format: spark and source: delta"
        ) from error


def _check_features(table: "DeltaTable", place: Place) -> None:
    if unknown := sorted({*(table.protocol().reader_features or ())} - READER_FEATURES):
        are = verb_for(len(unknown), "is a feature", "are features")
        raise SourceError(
            f"{place.path} needs {name_list(unknown)} of its readers, which {are} of Delta Lake that this format does not have; read it "
            "with format: spark and source: delta, or write a copy without"
        )


def _columns(table: "DeltaTable", place: Place) -> tuple[T.StructType, str]:
    """The columns as Spark has them, and how files name them. Column mapping counts only if the protocol says so."""
    protocol = table.protocol()
    may_map = protocol.min_reader_version == 2 or "columnMapping" in (protocol.reader_features or ())
    mapping = str(table.metadata().configuration.get(_MAPPING) or "none") if may_map else "none"
    try:
        return T.StructType.fromJson(json.loads(table.schema().to_json())), mapping
    except Exception as error:
        raise SourceError(f"{place.path} has a column of a type that Spark does not know ({error}); write a copy without it") from error


def _data_files(table: "DeltaTable", place: Place) -> list[DataFile]:
    with _log_errors(place):
        adds = pa.table(table.get_add_actions())
        deleted = _find_deleted_rows(table, place)
    partitions = adds["partition"].to_pylist() if "partition" in adds.column_names else [{}] * len(adds)
    values = (adds[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    files = [
        DataFile(path := place.file(name), name, size, rows, deleted.pop(path, None), partition)
        for name, size, rows, partition in zip(*values, partitions, strict=True)
    ]
    if deleted or len({file.path for file in files}) < len(files):
        raise SourceError(
            f"{place.path}: the log of version {table.version()} has a file twice, or deleted rows of a file that it lacks; mend the table"
        )
    return files


def _find_deleted_rows(table: "DeltaTable", place: Place) -> dict[str, np.ndarray]:
    """Positions of deleted rows by file. Only this call of delta-rs knows deletion vectors: as masks of the rows to keep."""
    deleted: dict[str, np.ndarray] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, mask in zip(batch.column(0), batch.column(1), strict=True):
            keep = mask.values.to_numpy(zero_copy_only=False)
            deleted[place.file(path.as_py())] = np.flatnonzero(~keep)
    return deleted
