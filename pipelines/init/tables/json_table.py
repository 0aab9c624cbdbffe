"""The table of files of JSON: a record a line, or an array of records."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.errors import SourceError
from pipelines.init.tables.column_types import type_values, without_infinity
from pipelines.init.tables.csv_table import MOST_BROKEN
from pipelines.init.tables.header import tensor_column_names
from pipelines.init.tables.sample import (
    SampledTable,
    TextSample,
    even_files,
    find_encoding,
    most_bytes_per_file,
    sample_beginning,
    sample_text,
)
from pipelines.init.tables.sql import selecting_query, sql_name

Kind = TypeVar("Kind")
FieldPath = tuple[str, ...]
"""The name of a column, or the names from it to a field of its structs."""
MOST_FIELDS = 200
"""Different fields of an object beyond which they are no columns."""
OBJECTS, MAP, MIXED, REPEATED = NO_TYPES = ("array<struct>", "map", "mixed", "repeated key")
"""In place of a type: no column of a schema holds the values."""
_LEADING_LINES = 5
"""Lines that show that a file has JSON, whatever its name."""


class _Field(NamedTuple):
    """A field of the records, in all of the spellings of its key."""

    path: FieldPath
    values: list[Any]
    spellings: list[str]
    """All that differ from the path's last name only in case, and that name."""
    is_repeated: bool = False
    """Whether an object has several of them, and so no one value."""


class _Records(NamedTuple):
    """The records in samples of some files."""

    records: list[dict[str, Any]]
    file_rows: tuple[int, ...]
    """Records of each sample."""
    all_rows: int
    """About how many records there are in all files."""
    broken: float
    """Share of the lines, or of an array's elements, that are no objects."""
    is_complete: bool
    is_document: bool
    """Whether the last file is an array."""


def read_json(paths: list[str], data: str) -> SampledTable:
    """The table. Raises SourceError for files without records, and for many that are none."""
    sample = _read_records(paths, data)
    fields = list(_flatten((), sample.records))
    raw_names = [".".join(field.path) for field in fields]
    new_names = tensor_column_names(raw_names)
    typed = {field.path: _type(name, field, sample.is_complete) for name, field in zip(new_names, fields, strict=True)}
    read_columns = {path: column for path, column in typed.items() if column.ddl not in NO_TYPES}
    flags = {"multiLine": True} if sample.is_document else {}
    doubts = [doubt for name, field in zip(raw_names, fields, strict=True) if (doubt := _doubt_of_spellings(name, field))]
    if constants := [
        name
        for name, field in zip(new_names, fields, strict=True)
        if any(isinstance(value, float) and not math.isfinite(value) for value in field.values)
    ]:
        flags["allowNonNumericNumbers"] = True
        doubts.append(f"NaN or Infinity, which is no JSON, is a missing value of {name_list(constants)}, by allowNonNumericNumbers")
    if nested := [column.name for path, column in read_columns.items() if len(path) > 1]:
        doubts.append(f"objects are taken apart by the query, and the model takes their fields, such as {nested[0]}")
    schema = _schema({path: column.ddl for path, column in read_columns.items()})
    return SampledTable(
        {"format": "json", "path": data, "schema": schema, **({"options": flags} if flags else {})},
        [ColumnFacts(column) for column in typed.values()],
        sample.all_rows,
        sample.is_complete,
        select=selecting_query({column.name: ".".join(map(sql_name, path)) for path, column in read_columns.items()}),
        broken=sample.broken,
        doubts=tuple(doubts),
        raw_names=dict(zip(new_names, raw_names, strict=True)),
        file_rows=sample.file_rows,
    )


def _read_records(paths: list[str], data: str) -> _Records:
    """The records of samples. Raises SourceError for files without records, and for many that are none."""
    sampled_paths = even_files(paths)
    records, file_rows, rows, broken = list[dict[str, Any]](), list[int](), 0.0, 0
    is_complete, is_document = len(sampled_paths) == len(paths), False
    most_bytes = most_bytes_per_file(sampled_paths)
    for path in sampled_paths:
        sample = sample_text(path, most_bytes)
        if find_encoding(sample.data, path) != "utf-8":
            raise SourceError(f"{path} is not UTF-8, which JSON is; save it as UTF-8")
        is_document = sample.data.lstrip()[:1] == b"["
        parsed = (
            read_json_document(sample, path) if is_document else [_parse(line, dict) for line in sample.data.splitlines() if line.strip()]
        )
        sound = [record for record in parsed if record is not None]
        broken += len(parsed) - len(sound)
        records += sound
        file_rows.append(len(sound))
        rows += len(sound) / sample.share if sample.share else 0
        is_complete &= sample.is_complete
    if not records and not broken:
        raise SourceError(f"{data} has no records; give a file that has some")
    share = broken / (len(records) + broken)
    if share > MOST_BROKEN:
        raise SourceError(f"{data}: {100 * share:.0f} % of the lines are no JSON objects; mend the file, or give one of JSON lines")
    return _Records(records, tuple(file_rows), round(rows * len(paths) / len(sampled_paths)), share, is_complete, is_document)


def has_json(path: str) -> bool:
    """Whether the first lines of a file are JSON objects, or it begins with an array of them."""
    beginning = sample_beginning(path, 2**20).data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not beginning.startswith(b"{"):
        return re.match(rb"\[\s*\{", beginning) is not None
    lines = list(islice((line for line in beginning.splitlines() if line.strip()), _LEADING_LINES))
    return all(_parse(line, dict) is not None for line in lines)


def _doubt_of_spellings(name: str, field: _Field) -> str:
    """A doubt about keys that differ only in case, which ETL takes for the same."""
    further = " and ".join(spelling for spelling in field.spellings if spelling != field.path[-1])
    if field.is_repeated:
        return (
            f"{name} and {further} are left out: they differ only in case, ETL takes them for the same key, and some objects have both; "
            "with other names in the file they are columns"
        )
    return f"{name} is also written {further}: both are one column" if further else ""


def read_json_document(sample: TextSample, path: str) -> list[dict[str, Any] | None]:
    """The records of an array."""
    if not sample.is_complete:
        raise SourceError(f"{path} is one JSON document, too large to be read at once; write it as JSON lines, a record a line")
    try:
        records = json.loads(sample.data)
    except (ValueError, RecursionError) as error:
        if _parse(sample.data.splitlines()[0], list) is not None:
            raise SourceError(f'{path} has an array in each line, without names of columns; write objects, such as {{"a": 1}}') from error
        raise SourceError(f"{path} is no JSON: {error}; mend the file") from error
    return [record if isinstance(record, dict) else None for record in records]


def _parse(line: bytes, kind: type[Kind]) -> Kind | None:
    """The value of a line; None if it is no JSON, or of another kind."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _flatten(path: FieldPath, objects: Sequence[dict[str, Any] | None]) -> Iterator[_Field]:
    """Each field of some objects, and the fields of fields that are objects themselves. The value of a field that a record lacks is None.
    Objects of very many fields are no columns: their names are values. Names that differ only in case are one, as for ETL."""
    counts = Counter(name for fields in objects if fields for name in fields)
    spellings: dict[str, list[str]] = {}
    for name in counts:
        spellings.setdefault(name.lower(), []).append(name)
    for written in spellings.values():
        name = max(written, key=counts.__getitem__)  # the most frequent
        if len(written) > 1 and any(sum(other in fields for other in written) > 1 for fields in objects if fields):
            yield _Field((*path, name), [None] * len(objects), written, is_repeated=True)
            continue
        values = [None if fields is None else next((fields[other] for other in written if other in fields), None) for fields in objects]
        fields_of_values = {field for value in values if isinstance(value, dict) for field in value}
        is_object = {type(value) for value in values if value is not None} == {dict}
        if is_object and 0 < len(fields_of_values) <= MOST_FIELDS:
            yield from _flatten((*path, name), values)
        else:
            yield _Field((*path, name), values, written)


def _schema(types: Mapping[FieldPath, str]) -> str:
    """The schema of columns by their paths: those of one object are a struct."""
    by_name: dict[str, dict[FieldPath, str]] = {}
    for (name, *fields), ddl in types.items():
        by_name.setdefault(name, {})[tuple(fields)] = ddl
    kinds = {name: fields[()] if () in fields else f"struct<{_schema(fields)}>" for name, fields in by_name.items()}
    return ", ".join(f"{sql_name(name)} {kind}" for name, kind in kinds.items())


def _type(name: str, field: _Field, is_complete: bool) -> TypedColumn:
    """The column with the type of all of its values."""
    values = field.values
    if field.is_repeated:
        return TypedColumn(name, REPEATED, pa.nulls(len(values)))
    kinds = {type(value) for value in values if value is not None}
    if kinds in ({bool}, {str}) or kinds <= {int, float}:  # as those of no value are
        return without_infinity(type_values(name, values, is_complete))
    if kinds <= {int, float, str}:  # Spark reads all of them as texts
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return type_values(name, texts, is_complete)
    if kinds == {list}:
        inner = {type(element) for value in values for element in value or ()}
        if inner == {str}:
            return TypedColumn(name, "array<string>", pa.array(values, pa.list_(pa.string())))
        if inner and inner <= {int, float}:
            return TypedColumn(name, "array<double>", pa.array(values, pa.list_(pa.float64())))
        return TypedColumn(name, OBJECTS if inner == {dict} else MIXED, pa.nulls(len(values)))
    return TypedColumn(name, MAP if kinds == {dict} else MIXED, pa.nulls(len(values)))
