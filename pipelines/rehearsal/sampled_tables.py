"""The tables of a config with parts of their files, where these are large."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Config
from pipelines.config.dataset.dataset import ByColumn, ByFraction
from pipelines.config.source.source import FileTableSettings, Source, Table
from pipelines.data.sources.files.content import COMPRESSED, file_errors
from pipelines.data.sources.files.files import find, glob_root
from pipelines.data.sources.files.listing import File
from pipelines.init.tables.parquet_table import sample_row_groups
from pipelines.init.tables.sample import sample_beginning, sample_text

MOST_BYTES = 2**20
"""Of the text or Parquet of a table, beyond which a sample is tried. Spark reads it in a second or two."""
MOST_FILE_BYTES = 16 * 2**20
"""Of whole files: pictures, recordings, workbooks, archives."""
MOST_FILES = 100
"""The most files of a table that are tried."""
_TAIL_BYTES = 2**16
"""Of a file's end, where a footer stands."""
_TEXT = ("csv", "json", "text")
"""Formats whose files may be cut between lines."""
Write = Callable[[str, Path], None]
"""Writes a sample of a file, or a link to it, at a new place."""


@dataclass(frozen=True)
class SampledTables:
    """Where a rehearsal reads the tables of a config."""

    paths: Mapping[str, str]
    """The path of the sample of each table that is not read whole; Parquet of what are no files."""
    unread: tuple[str, ...] = ()
    """Tables of which no part can be read, or too large for it: they are only analysed."""

    @property
    def is_complete(self) -> bool:
        return not self.paths and not self.unread


def sample_tables(source: Source, folder: Path) -> SampledTables:
    """Write samples of the source's large tables below `folder`. Paths of the source are absolute. Raises SourceError if a path matches no
    file."""
    files = {name: find(table.path) for name, table in source.tables.items() if isinstance(table, FileTableSettings)}
    chosen = _choose_files(source, files)
    paths, unread = dict[str, str](), list[str]()
    for name in [name for name in source.tables if name not in files]:
        if not (sampler := source.tables[name].sampler):
            unread.append(name)
        elif (rows := _sampler(sampler)(source.tables[name], MOST_BYTES)) is not None:
            folder.mkdir(exist_ok=True)
            paths[name] = f"{folder}/{name}.parquet"
            pq.write_table(rows, paths[name])
    for name, table_files in chosen.items():
        table: Any = source.tables[name]
        write = _writer(table)
        total = sum(file.bytes for file in table_files)
        if total <= (MOST_BYTES if write else MOST_FILE_BYTES):
            if len(table_files) < len(files[name]):
                paths[name] = _write_sample(table, table_files, folder / name, _link)
        elif write:
            write_part = partial(write, most_bytes=MOST_BYTES // len(table_files))
            paths[name] = _write_sample(table, table_files, folder / name, write_part)
        else:
            unread.append(name)
    return SampledTables(paths, tuple(unread))


def _sampler(path: str) -> Callable[[Any, int], pa.Table | None]:
    """The function that `module:function` names."""
    module, _, name = path.partition(":")
    function: Callable[[Any, int], pa.Table | None] = getattr(import_module(module), name)
    return function


def use_samples(config: Config, folder: str, paths: Mapping[str, str]) -> Config:
    """The config of a version in `folder` of the samples at `paths`, which refuses none for its share of refused rows. A part of the rows
    may have none later than some time, so it is split by a hash."""
    tables = {
        name: table
        if name not in paths
        else table.model_copy(update={"path": paths[name]})
        if isinstance(table, FileTableSettings)
        else Table(format="parquet", path=paths[name])
        for name, table in config.source.tables.items()
    }
    split = ByFraction() if paths and not isinstance(config.dataset.split, ByColumn) else config.dataset.split
    dataset = config.dataset.model_copy(update={"path": folder, "split": split})
    source = config.source.model_copy(update={"tables": tables, "max_quarantined": 1.0})
    return config.model_copy(update={"source": source, "dataset": dataset})


def _choose_files(source: Source, files: Mapping[str, Sequence[File]]) -> dict[str, Sequence[File]]:
    """At most MOST_FILES files of each table, at even distances, and the smallest one, which may be empty. A picture and its mask or its
    list of boxes have one name without its endings, so those of equal names stay together."""
    if all(len(table_files) <= MOST_FILES for table_files in files.values()):
        return dict(files)
    largest = max(files.values(), key=len)
    even = [largest[len(largest) * place // MOST_FILES] for place in range(MOST_FILES)]
    names = {_stem(file) for file in [*even, min(largest, key=lambda file: file.bytes)]}
    return {
        name: matching
        if (matching := [file for file in table_files if _stem(file) in names]) and len(table_files) > MOST_FILES
        else table_files
        for name, table_files in files.items()
    }


def _stem(file: File) -> str:
    return os.path.basename(file.path).partition(".")[0]


def _writer(table: Any) -> Callable[..., None] | None:
    """A function that writes `most_bytes` of a file of the table at a new place; None if only whole files of its format can be read."""
    if table.format == "parquet":
        return _write_rows
    if table.format in _TEXT:
        options = {name.lower(): value for name, value in table.options.items()}
        if table.format == "json" and options.get("multiline"):
            return None
        return partial(_write_lines, quote=str(options.get("quote", '"')) if options.get("multiline") else "")
    return None


def _write_sample(table: FileTableSettings, files: Sequence[File], folder: Path, write: Write) -> str:
    """Write samples of the files, in the same folders below their path's root, and return the path of them all."""
    root = os.path.commonpath([glob_root(path) for path in table.paths])
    for file in files:
        relative = os.path.relpath(file.path, root)
        place = folder / (os.path.basename(file.path) if relative == "." else relative)
        place.parent.mkdir(parents=True, exist_ok=True)
        write(file.path, place)
    is_single = len(table.paths) == 1 and table.paths[0] == files[0].path
    return str(folder / os.path.basename(files[0].path)) if is_single else str(folder)


def _link(path: str, place: Path) -> None:
    place.symlink_to(path)


def _write_lines(path: str, place: Path, *, most_bytes: int, quote: str) -> None:
    """Whole lines of a file at even distances and the last ones, which may be a footer; of records of several lines, the first."""
    sample = sample_beginning(path, most_bytes, quote) if quote else sample_text(path, most_bytes)
    data = sample.data if quote or sample.is_complete or path.endswith(COMPRESSED) else sample.data + _lines_after(sample.data, path)
    ending = next((ending for ending in COMPRESSED if path.endswith(ending)), "")
    if not ending:
        place.write_bytes(data)
        return
    with suppress(OSError):  # else the whole file is read
        with pa.output_stream(str(place), compression="detect") as stream:
            stream.write(data)
        return
    place.unlink(missing_ok=True)
    _link(path, place)


def _lines_after(data: bytes, path: str) -> bytes:
    """The last lines of a file, without those at the end of its sample. None of UTF-16, whose line breaks are no single bytes."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return b""
    with open(path, "rb") as file:
        file.seek(-min(_TAIL_BYTES, os.path.getsize(path)), os.SEEK_END)
        lines = file.read().partition(b"\n")[2]
    sampled = data[data.rstrip(b"\n").rfind(b"\n") + 1 :]
    return lines[lines.rfind(sampled) + len(sampled) :] if sampled in lines else lines


def _write_rows(path: str, place: Path, *, most_bytes: int) -> None:
    with file_errors(path), pq.ParquetFile(path) as file:
        pq.write_table(sample_row_groups(file, most_bytes), place)
