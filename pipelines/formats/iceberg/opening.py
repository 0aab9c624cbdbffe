"""Finds the metadata of a table: by a catalog, by the path of a metadata file, or in the table's folder."""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as metadata_version
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyiceberg import exceptions
from pyiceberg.catalog import load_catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import NestedField
from sqlalchemy.exc import SQLAlchemyError

from pipelines.config.messages.words import name_list
from pipelines.config.paths import absolute_path, home
from pipelines.data.sources.files.content import file_errors, locate
from pipelines.errors import SourceError
from pipelines.formats.iceberg.settings import IcebergTable

VERSIONS = (1, 2, 3)
"""Of the table format."""
_NAME = re.compile(r"(?:v(\d+)|(\d+)-[^/]*?)(?:\.gz)?\.metadata\.json(?:\.gz)?")
"""A metadata file with its number: of tables without a catalog, and with one."""
ENCRYPTED = "and Iceberg's encryption is not read; copy the table into one without encryption"
_SQLITE = "sqlite:///"
_HINT = "version-hint.text"
_ENDINGS = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_LIBRARY_ERRORS: tuple[type[Exception], ...] = tuple(
    kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)
)
_PARSER_ERRORS: tuple[type[Exception], ...] = (*_LIBRARY_ERRORS, ValueError, TypeError, KeyError)
_CATALOG_ERRORS: tuple[type[Exception], ...] = (*_PARSER_ERRORS, SQLAlchemyError, OSError, ImportError)


@dataclass(frozen=True)
class Place:
    """Where the files of a table lie: where its metadata say, or, if its folder was copied, in that folder."""

    stated: str
    """The table's folder, as the metadata name it."""
    actual: str

    def resolve(self, path: str) -> str:
        """Where a file lies that the metadata name."""
        stated, inner = without_scheme(self.stated), without_scheme(path)
        return self.actual + inner[len(stated) :] if self.actual != self.stated and inner.startswith(f"{stated}/") else path


@dataclass(frozen=True)
class OpenTable:
    metadata: TableMetadata
    io: FileIO
    place: Place


@contextmanager
def table_file_errors(path: str) -> Iterator[None]:
    """Turns errors of a table's file into a SourceError that names it and says what is to be done."""
    try:
        with file_errors(path):
            yield
    except SourceError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise SourceError(
            f"{path} is missing, which the table's metadata name: it was removed, its snapshot expired while it was read, or the table was "
            "copied without it; restore the file, or name another snapshot"
        ) from error


def open_iceberg(settings: IcebergTable) -> OpenTable:
    """The table's metadata, and what opens its files. Raises SourceError if there is no such table, or none that is read."""
    return _open_of_catalog(settings) if settings.catalog else open_path(settings.path)


def _open_of_catalog(settings: IcebergTable) -> OpenTable:
    properties: dict[str, Any] = {name: str(value) for name, value in settings.catalog.items() if name != "name"}
    if (uri := properties.get("uri", "")).startswith(_SQLITE):
        properties["uri"] = _SQLITE + absolute_path(uri.removeprefix(_SQLITE), home())
    if properties.get("type") == "sql":
        properties.setdefault("init_catalog_tables", "false")  # reading makes no tables
    name = settings.catalog.get("name")
    try:
        table = load_catalog(None if name is None else str(name), **properties).load_table(settings.table)
    except exceptions.NoSuchTableError as error:
        raise SourceError(
            f"the catalog {name or 'default'} has no table {settings.table}; correct it, such as namespace.table, or the catalog's name"
        ) from error
    except _CATALOG_ERRORS as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceError(
            f"{settings.table}: the catalog does not give the table: {type(error).__name__}: {reason}; correct the catalog's properties, "
            "or name the table's metadata file as its path"
        ) from error
    return OpenTable(table.metadata, table.io, Place(table.metadata.location, table.metadata.location))


def open_path(path: str) -> OpenTable:
    """A table without a catalog. Properties of the table are not used to open its files: they may name any Python class."""
    metadata_path = find_metadata(path)
    io = load_file_io({}, location=metadata_path)
    metadata = _read_metadata(io, metadata_path)
    stated, actual = metadata.location.rstrip("/"), metadata_path.rpartition("/")[0].rpartition("/")[0]
    return OpenTable(metadata, io, _place(io, metadata, stated, actual))


def _place(io: FileIO, metadata: TableMetadata, stated: str, actual: str) -> Place:
    """The folder that holds the metadata file, if it holds the lists of the snapshots too; else the one that the metadata state."""
    snapshot = metadata.current_snapshot() or next(iter(metadata.snapshots), None)
    copied = Place(stated, actual)
    if snapshot is None or without_scheme(stated) == without_scheme(actual):
        return Place(stated, stated)
    moved_list = copied.resolve(snapshot.manifest_list)
    return copied if moved_list != snapshot.manifest_list and io.new_input(moved_list).exists() else Place(stated, stated)


def without_scheme(path: str) -> str:
    """Paths of a table may name its folder in several ways: as file:/a, file:///a and /a, or as s3://a and s3a://a."""
    return re.sub(r"^\w+:(//(?=[^/])|//(?=/))?", "", path)


def find_metadata(path: str) -> str:
    """The metadata file of a table: the path itself, or the newest one of the folder. Raises SourceError if there is none, or if two may be
    the newest."""
    path = path.rstrip("/")
    filesystem, inner = locate(path)
    base = inner if "://" not in path else path
    with file_errors(path):
        kind = filesystem.get_file_info(inner).type
    if kind == FileType.File:
        return base
    if kind == FileType.NotFound:
        raise SourceError(f"{path}: no such file or folder; give the folder of an Iceberg table, or its newest metadata file")
    for folder in (f"{inner}/metadata", inner):
        with file_errors(folder):
            entries = filesystem.get_file_info(FileSelector(folder, allow_not_found=True))
        names = {entry.base_name for entry in entries if entry.is_file}
        if any(_NAME.fullmatch(name) for name in names):
            hint = ""
            if _HINT in names:
                with file_errors(f"{folder}/{_HINT}"), filesystem.open_input_stream(f"{folder}/{_HINT}") as stream:
                    hint = stream.read().decode().strip()
            return f"{base}/metadata/{newest(names, hint, path)}" if folder != inner else f"{base}/{newest(names, hint, path)}"
    raise SourceError(
        f"{path} holds no metadata of an Iceberg table (metadata/*.metadata.json); give the table's folder, or the metadata file itself"
    )


def newest(names: set[str], hint: str, path: str) -> str:
    """The newest of some metadata files, by the `hint` or by their numbers. Raises SourceError if two may be it, or if the hint's is gone.

    A writer updates the hint after it has written the file, so a file of a version that follows is newer."""
    if hint and not hint.isdecimal():
        candidates = [name for name in (hint, f"{hint}.metadata.json") if name in names]
    elif hint:
        version = int(hint)
        while _version_files(names, version + 1):
            version += 1
        candidates = _version_files(names, version)
    else:
        numbers = {name: int(match[1] or match[2]) for name in names if (match := _NAME.fullmatch(name))}
        candidates = sorted(name for name, number in numbers.items() if number == max(numbers.values()))
    if not candidates:
        raise SourceError(f"{path}: {_HINT} says {hint}, and there is no such metadata file; name the newest metadata file as the path")
    if len(candidates) > 1:
        raise SourceError(
            f"{path} has {len(candidates)} metadata files of the highest number, of which a writer gave up all but one: "
            f"{name_list(candidates)}; name the one that the catalog has as the path"
        )
    return candidates[0]


def _version_files(names: set[str], version: int) -> list[str]:
    return [name for ending in _ENDINGS if (name := f"v{version}{ending}") in names]


def _read_metadata(io: FileIO, path: str) -> TableMetadata:
    """Raises SourceError for metadata of another version of the format, or with what pyiceberg does not know."""
    with table_file_errors(path), io.new_input(path).open() as stream:
        content = stream.read()
        text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        document = json.loads(text)
    version = document.get("format-version") if isinstance(document, dict) else None
    if version not in VERSIONS:
        raise SourceError(
            f"{path}: the version of Iceberg's format is {version}, and only {name_list(list(map(str, VERSIONS)))} are read; give metadata "
            "of a table of such a version"
        )
    if document.get("encryption-keys"):
        raise SourceError(f"{path}: the table is encrypted, {ENCRYPTED}")
    if unknown := [f"{name} ({kind})" for schema in _schemas(document) for name, kind in _unknown_types(schema)]:
        raise SourceError(
            f"{path}: columns have types that pyiceberg {metadata_version('pyiceberg')} does not know: {name_list(sorted(set(unknown)))}; "
            "write a table without them, and give that"
        )
    try:
        return TableMetadataUtil.parse_raw(text.decode())
    except _PARSER_ERRORS as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceError(f"{path}: pyiceberg does not read these metadata: {reason}; mend the table where it was written") from error


def _schemas(document: Mapping[str, Any]) -> list[Any]:
    return [*document.get("schemas", ()), *([document["schema"]] if "schema" in document else [])]


def _unknown_types(kind: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, str]]:
    """Fields inside a nested type of Iceberg's JSON whose types pyiceberg does not know, with these."""
    inner = [(field.get("name", ""), field.get("type")) for field in kind.get("fields", ())]
    inner += [(part, kind[part]) for part in ("element", "key", "value") if part in kind]
    for part, part_kind in inner:
        path = f"{name}.{part}" if name else part
        if isinstance(part_kind, dict):
            yield from _unknown_types(part_kind, path)
            continue
        try:
            NestedField(1, part, part_kind)
        except (ValueError, TypeError, exceptions.ValidationError):
            yield path, str(part_kind)
