"""Raw rows in Parquet, CSV or JSON Lines, such as the input of predictions, in the columns that the encoders of a version read."""

import json
from collections.abc import Iterable
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.json as pajson
from pyarrow.fs import FileSystem, FileType

from pipelines.config.messages.words import name_list
from pipelines.data.rowwise.engine import Evaluator
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import schema_from_text
from pipelines.errors import ConfigError, SourceError

MOST_ROWS = 2_000_000
"""Rows that are compared; of more, those at equal distances."""
_KINDS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_COMPRESSED = (".gz", ".bz2", ".zst")


def read_input(path: str, manifest: Manifest) -> tuple[pa.Table, tuple[str, ...]]:
    """The rows of a file, or of all files of a folder, as `query_columns` gives them. Raises SourceError if there is no such file, or it
    cannot be read."""
    filesystem, place = storage.locate(path)
    files = _list_files(filesystem, place)
    if not files:
        kinds = ", ".join(_KINDS)
        raise SourceError(f"{path} is no dataset version, and has no file of rows; give a version's folder, or files that end with {kinds}")
    expected = [schema_from_text(text) for text in (manifest.raw_schema, manifest.served_query and manifest.served_query.inputs) if text]
    try:
        table = pa.concat_tables([_read_file(filesystem, file, expected) for file in files], promote_options="permissive")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(f"{path}: {' '.join(str(error).split())}; save it anew as Parquet, CSV with a header or JSON Lines") from error
    return query_columns(table, manifest, path)


def query_columns(table: pa.Table, manifest: Manifest, place: str) -> tuple[pa.Table, tuple[str, ...]]:
    """The columns that the version's encoders read, from rows of the raw table, by the served query, or from rows of the query; and the
    columns that only a target or a carried column needs, and that are not there. Raises ConfigError if a feature's column is missing, or is
    of another sort of values."""
    needed = {column for fitted in manifest.encoders.values() for column in fitted.inputs}
    features = {column for fitted in manifest.encoders.values() if fitted.column.role == "feature" for column in fitted.inputs}
    if len(table) > MOST_ROWS:
        table = table.take(pa.array(np.arange(MOST_ROWS) * len(table) // MOST_ROWS))
    query = manifest.served_query
    if query and set(query.input_schema.names) <= set(table.column_names):
        evaluator = Evaluator()
        try:
            queried, _ = evaluator.apply_query(_cast(table, query.input_schema, place), query)
        finally:
            evaluator.close()
        return queried, tuple(sorted(needed - set(queried.column_names)))
    if missing := features - set(table.column_names):
        raise ConfigError(
            f"{place} has no column {name_list(sorted(missing))}, which features of version {manifest.version} are made of; it has "
            f"{name_list(table.column_names)}: give a table with the columns of the query, or of the raw table"
        )
    schema = schema_from_text(manifest.raw_schema) if manifest.raw_schema else table.schema
    present = [field for field in schema if field.name in needed and field.name in table.column_names]
    return _cast(table, pa.schema(present), place), tuple(sorted(needed - set(table.column_names)))


def _cast(table: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    columns = []
    for field in schema:
        try:
            columns.append(table.column(field.name).cast(field.type, safe=not pa.types.is_floating(field.type)))
        except (pa.ArrowException, ValueError) as error:
            raise ConfigError(
                f"{place}: column {field.name} is {table.schema.field(field.name).type}, and not {field.type} as in the version: "
                f"{' '.join(str(error).split())}; cast it where the table is written"
            ) from error
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def _list_files(filesystem: FileSystem, place: str) -> list[str]:
    with storage.store_errors(place):
        entry = filesystem.get_file_info(place)
    if entry.type == FileType.File:
        return [place] if _kind(place) else []
    paths = (entry.path for entry in storage.entries(filesystem, place, recursive=True) if entry.is_file)
    return [path for path in paths if _kind(path) and not _is_hidden(path.removeprefix(place))]


def _is_hidden(path: str) -> bool:
    """Whether Spark would leave the file out."""
    return any(name.startswith(("_", ".")) for name in path.split("/"))


def _kind(path: str) -> str:
    endings = [ending for ending in PurePosixPath(path.lower()).suffixes if ending not in _COMPRESSED]
    return _KINDS.get(endings[-1], "") if endings else ""


def _read_file(filesystem: FileSystem, path: str, expected: Iterable[pa.Schema]) -> pa.Table:
    if _kind(path) == "parquet":
        return pads.dataset(path, filesystem=filesystem, format="parquet").to_table()
    with filesystem.open_input_stream(path, compression="detect") as stream:
        types = {field.name: field.type for schema in expected for field in schema}
        if _kind(path) == "csv":
            options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
            return pacsv.read_csv(stream, convert_options=options)
        return _read_json(stream.read(), pa.schema(types.items()))


def _read_json(content: bytes, expected: pa.Schema) -> pa.Table:
    """Lines of JSON. Arrow adds the columns that are expected and not there: those without a value that the first line does not have are
    left out."""
    table = pajson.read_json(
        pa.BufferReader(content), parse_options=pajson.ParseOptions(explicit_schema=expected if len(expected) else None)
    )
    first_keys = json.loads(content.split(b"\n", 1)[0] or b"{}")
    return table.select([name for name in table.column_names if name in first_keys or table[name].null_count < len(table)])
