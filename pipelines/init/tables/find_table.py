"""Finds the table of a file, or of a folder of files that are alike, and the format of the files."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from pipelines.config.messages.words import name_list, show_count, verb_for
from pipelines.config.slices import slice_modules
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.sources.files.content import COMPRESSED
from pipelines.errors import SourceError
from pipelines.init.media.class_folders import SPLITS, folder_splits
from pipelines.init.tables.column_types import as_text, type_columns
from pipelines.init.tables.csv_table import read_delimited
from pipelines.init.tables.json_table import has_json, read_json
from pipelines.init.tables.parquet_table import read_parquet
from pipelines.init.tables.sample import SampledTable, even_files
from pipelines.init.tables.sql import escape_braces, sql_name
from pipelines.init.tables.target import target_names

ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".ssv", ".dat", ".data"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
}
"""The core's formats by the ending of a file; a single file of another one is CSV if its lines have equally many values."""
_NOTES = re.compile(r"(readme|license|licence|copying|notice)\b.*|.*\.(md|names|rst|pdf|html?|info)", re.IGNORECASE)
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value in the names of folders whose rows have none."""
_SPLITS = {
    split: re.compile(f"(^|[^a-z])({'|'.join(word for word in SPLITS if SPLITS[word] == split)})([^a-z]|$)", re.IGNORECASE)
    for split in dict.fromkeys(SPLITS.values())
}
"""Files of published splits, by their names."""


@dataclass(frozen=True)
class TableKind:
    """Files of a slice's format, each a table: of `TABLE_KINDS` in its module `draft`."""

    format: str
    endings: tuple[str, ...]
    read: Callable[[list[str], str, int | None], SampledTable]
    """Takes the files, the path that the config is to have, and the rows before the names of the columns, if that number is told."""


@cache
def _table_kinds() -> tuple[TableKind, ...]:
    return tuple(kind for module in slice_modules("draft").values() for kind in getattr(module, "TABLE_KINDS", ()))


def _kinds_by_ending() -> dict[str, TableKind]:
    return {ending: kind for kind in _table_kinds() for ending in kind.endings}


def file_format(path: Path) -> str | None:
    """The format that the ending of a file says, before that of its compression."""
    name = path.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    suffix = Path(name).suffix
    if suffix in ENDINGS:
        return ENDINGS[suffix]
    kind = _kinds_by_ending().get(suffix)
    return kind.format if kind else None


def find_table(data: str, skip_rows: int | None = None, target: str = "") -> SampledTable | None:
    """The table of the data; None if they are no table. `skip_rows` stand before the names of its columns; None if that is to be found out.
    Files of a test that have no value of the `target` are not used.

    Raises SourceError if it is a table that cannot be read."""
    path = Path(data)
    if path.is_file():
        kind = file_format(path)
        return _read([data], data, kind or "csv", kind is not None, skip_rows)
    all_files = sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in all_files if not _is_hidden(file.relative_to(path))]
    kinds = {kind for file in files if (kind := file_format(file))}
    if not kinds:
        return None
    strange = [file for file in files if not file_format(file) and not _NOTES.fullmatch(file.name)]
    if len(kinds) > 1 or strange:
        first_of_kinds = [next(file for file in files if file_format(file) == kind) for kind in sorted(kinds)]
        examples = [file.name for file in (*first_of_kinds, *strange)]
        raise SourceError(
            f"{data} has files of different kinds, such as {' and '.join(examples[:2])}; give a folder of one kind, or one file"
        )
    tables, kind = [str(file) for file in files if file_format(file)], kinds.pop()
    hidden = [file.name for file in all_files if _is_hidden(file.relative_to(path)) and file_format(file)]
    if splits := _splits(path, tables):
        table, doubts = _table_of_splits(splits, kind, skip_rows, target), []
    else:
        table = _read(tables, data, kind, True, skip_rows)
        table, doubts = _add_folder_columns(table, path, tables) if table else (None, [])
    if hidden:
        are = verb_for(len(hidden), "is not read, since it or its folder begins", "are not read, since they or their folders begin")
        doubts.append(f"{show_count(len(hidden), 'file')} {are} with _ or a dot, such as {hidden[0]}; to read it, rename it")
    return replace(table, doubts=(*table.doubts, *doubts)) if table else None


def _is_hidden(path: Path) -> bool:
    """Whether ETL does not read the file either; folders such as `_year=2021` are columns."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.parts)


def _add_folder_columns(table: SampledTable, root: Path, paths: list[str]) -> tuple[SampledTable, list[str]]:
    """The table with the columns of the folders `column=value` that its files lie in, as ETL makes them: texts, of which the query makes
    values if all folders have such a value, also those of which no file is in the sample. And doubts: about them, and about other folders,
    which are no columns."""
    folders = [Path(path).relative_to(root).parts[:-1] for path in paths]
    pairs = [dict(part.split("=", 1) for part in parts if "=" in part) for parts in folders]
    names = [name for name in pairs[0] if name.lower() not in {column.name.lower() for column in table.columns}]
    if not pairs[0]:
        plain = sorted({parts[0] for parts in folders if parts})
        if len(plain) < 2:
            return table, []
        return table, [
            f"the folders of the files, such as {plain[0]}, are no column; to make one, rename them to NAME={plain[0]} and so on"
        ]
    is_readable = table.select == "*" or table.select.startswith("SELECT * FROM") or table.select.endswith(" FROM {}")
    if not (is_readable and table.file_rows and all(values.keys() == pairs[0].keys() for values in pairs)):
        return table, [f"{name_list(list(pairs[0]))}: the values in the names of folders are no columns of the draft"]
    place_by_path = {path: place for place, path in enumerate(paths)}
    row_places = np.repeat([place_by_path[path] for path in even_files(paths)], table.file_rows)
    select, added = table.select, []
    for name in names:
        texts = pa.array([None if values[name] == _NULL_FOLDER else unquote(values[name]) for values in pairs], pa.large_string())
        column = as_text(type_columns({name: texts}, "", False)[0])
        added.append(ColumnFacts(replace(column, values=column.values.take(pa.array(row_places)))))
        if select.endswith(" FROM {}") and not select.startswith("SELECT * FROM"):
            select = f"{select.removesuffix(' FROM {}')}, {escape_braces(sql_name(name))} FROM {{}}"
    doubts = [f"{name} is a column, by the names of the folders, such as {name}={pairs[0][name]}" for name in names]
    return replace(table, columns=[*added, *table.columns], select=select), doubts


def _splits(folder: Path, paths: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Of each split, the path of the file, or of the folder that holds all of its files, and the files: by their names, or by the folders
    that they lie in. None unless every file is of one, and there are those of training and test."""
    by_name = {split: [path for path in paths if look.search(Path(path).name.split(".")[0])] for split, look in _SPLITS.items()}
    is_clear = sum(map(len, by_name.values())) == len(paths) and all(len(named) <= 1 for named in by_name.values())
    if is_clear and by_name["train"] and by_name["test"]:
        return {split: (named[0], named) for split, named in by_name.items() if named}
    parts = {path: Path(path).relative_to(folder).parts for path in paths}
    if any(len(names) == 1 for names in parts.values()):
        return {}
    splits = folder_splits(sorted({names[0] for names in parts.values()}))
    return {
        split: (str(folder / name), [path for path, names in parts.items() if names[0] == name])
        for name, split in splits.items()
        if "test" in splits.values()
    }


def _table_of_splits(splits: dict[str, tuple[str, list[str]]], kind: str, skip_rows: int | None, target: str) -> SampledTable | None:
    """The table of the files of some splits. A split with other columns than that of training, or without a value of the target, is left
    out."""
    tables = {split: _read(files, path, kind, True, skip_rows) for split, (path, files) in splits.items()}
    train, data = tables["train"], splits["train"][0]
    assert train is not None, "a file with a known ending is a table, or an error"
    names = [column.name for column in train.columns]
    other = [split for split, table in tables.items() if table is None or [column.name for column in table.columns] != names]
    doubts = tuple(f"{splits[split][0]} has other columns than {data}, as one without the target has, and is not used" for split in other)
    for split, table in tables.items():
        if table and split not in (*other, "train"):
            blank = [name for name in target_names(train, target) if not len(table.column(name).filled)]
            other += [split] * bool(blank)
            doubts += tuple(f"{splits[split][0]} has no value of {name}, and is not used" for name in blank)
    if other:
        return replace(train, doubts=(*train.doubts, *doubts))
    joined = _read([path for _, files in splits.values() for path in files], data, kind, True, skip_rows)
    assert joined is not None
    return replace(joined, splits={split: {**joined.settings, "path": path} for split, (path, _) in splits.items()})


def _read(paths: list[str], data: str, kind: str, is_sure: bool, skip_rows: int | None) -> SampledTable | None:
    """The table of files of one format."""
    if kind == "parquet":
        return read_parquet(paths, data)
    if table_kind := next((table_kind for table_kind in _kinds_by_ending().values() if table_kind.format == kind), None):
        return table_kind.read(paths, data, skip_rows)
    if kind == "json" or has_json(paths[0]):  # whose files may have any name
        return read_json(paths, data)
    return read_delimited(paths, data, is_sure, skip_rows)
