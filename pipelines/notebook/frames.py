"""Data of `api.fit`: a frame becomes a Parquet file, so that it is a raw table like any other, and the config is drafted from the file, or
from a path."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from textwrap import shorten
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.config import Config, home
from pipelines.config.load import parse_with_overrides, with_absolute_paths
from pipelines.config.messages.validation_errors import show_value
from pipelines.config.messages.words import name_list
from pipelines.config.paths import absolute_path
from pipelines.config.train.defaults import convert_to_task
from pipelines.errors import SourceError
from pipelines.init.draft import Request, config_path, pipeline_name, plain_values
from pipelines.init.drafting import draft_config
from pipelines.notebook.python_config import task_values
from pipelines.runtime.atomic import write_file

_MOST_CHARACTERS = 90
"""Of a column's name, to which drafts append what became of it."""
_NOTE_CHARACTERS = 400
log = logging.getLogger(__name__)


def first_config(data: Any, target: str, overrides: Mapping[str, Any], name: str, task: Any) -> Config:
    """Draft the config of a path or a frame, with the arguments of `api.fit`, and log what was assumed.

    Raises ConfigError or SourceError if no config can be made."""
    network = {} if task is None else task_values(task)
    from_frame = is_frame(data)
    path = store_frame(data, home() / "data" / "frames") if from_frame else Path(absolute_path(str(data), home()))
    name = name or ("frame" if from_frame else pipeline_name(config_path(path, "")))
    draft = draft_config(Request(str(path), target, name))
    for note in draft.notes:
        log.warning("%s", shorten(note, _NOTE_CHARACTERS, placeholder=" …"))
    values = plain_values(draft)
    if network:
        drafted = {name: value for name, value in values["task"].items() if name in ("kind", "class_weights")}
        values, _ = convert_to_task({**values, "task": drafted}, {"kind": "tabular", **network})
        values.pop("tune", None)  # which searches the settings of another network
    return with_absolute_paths(parse_with_overrides(values, overrides, f"the settings for {name}"), home())


def is_frame(data: Any) -> bool:
    """Whether `data` is a frame and not a path. Raises SourceError if it is neither."""
    if isinstance(data, str | Path):
        return False
    has_rows = any(hasattr(data, method) for method in ("toArrow", "to_arrow", "__arrow_c_stream__", "iloc"))
    if isinstance(data, pa.Table) or (has_rows and (hasattr(data, "columns") or not hasattr(data, "iloc"))):
        return True
    raise SourceError(f"data is of type {type(data).__name__}; pass a path, or a frame, as by pandas.DataFrame(data)")


def store_frame(frame: Any, folder: Path) -> Path:
    """Write a frame to a file of this folder, unless it is there already, and return its path.

    Equal rows in the same order make the same file, whatever the frame's library, chunks and index. Raises SourceError for a frame that
    no table can hold."""
    table = plain_table(frame)
    if empty := [field.name for field in table.schema if pa.types.is_null(field.type)]:
        log.info("columns without any value are left out: %s", name_list(empty))
        table = table.drop_columns(empty)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    content = sink.getvalue()
    path = folder / f"{sha256(content).hexdigest()[:16]}.parquet"
    if not path.exists():
        write_file(path, content)
    return path


def plain_table(frame: Any) -> pa.Table:
    """The frame's rows in one chunk, without its index, as types that Spark reads: categories as their values, times in microseconds."""
    if hasattr(frame, "iloc"):  # pandas would convert names to text
        _check_names(list(frame.columns))
    table = _arrow_table(frame)
    _check_names(table.column_names)
    if not table.num_rows or not table.num_columns:
        raise SourceError(f"the frame has {table.num_rows} rows and {table.num_columns} columns; pass one with rows and columns")
    columns = [_plain_column(name, table.column(name)) for name in table.column_names]
    # Without the metadata, in which pandas keeps its index and its own types.
    return pa.table(dict(zip(table.column_names, columns, strict=True))).combine_chunks()


def _check_names(names: Sequence[Any]) -> None:
    if other := [name for name in names if not isinstance(name, str)]:
        raise SourceError(f"the frame has a column called {other[0]!r}, which is no text; rename it, as by frame.columns = [...]")
    if odd := [name for name in names if not name.strip() or len(name) > _MOST_CHARACTERS or re.search(r"[.`/\x00-\x1f]", name)]:
        rule = f"a name has 1 to {_MOST_CHARACTERS} characters, and none of . ` / or a tab"
        raise SourceError(f"the frame has a column called {show_value(odd[0])}; {rule}: rename it")
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise SourceError(f"the frame has several columns called {repeated[0]}; rename or drop all but one")


def _arrow_table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    try:
        if hasattr(frame, "iloc"):
            if type(frame.index).__name__ != "RangeIndex":
                log.info("the frame's index is left out; reset_index() makes it a column")
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "toArrow"):  # Spark
            return frame.toArrow()
        if hasattr(frame, "collect"):  # a lazy frame of Polars
            frame = frame.collect()
        return frame.to_arrow() if hasattr(frame, "to_arrow") else pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:  # ArrowTypeError is a TypeError
        reason = "; ".join(map(str, error.args)).splitlines()[0]
        raise SourceError(f"the frame cannot become a table: {reason}; convert that column to one type, as by .astype(str)") from error


def _plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.DictionaryType) and isinstance(kind.value_type, pa.BaseExtensionType):
        raise SourceError(f"column {name} of type {kind.value_type} can be stored in no table; convert it, as by .astype(str)")
    if pa.types.is_dictionary(kind):
        return _plain_column(name, column.cast(kind.value_type))
    if pa.types.is_timestamp(kind):  # microseconds, rounded down; with a time zone, the moment in UTC
        column = pc.floor_temporal(column, unit="microsecond") if kind.unit == "ns" else column
        return column.cast(pa.timestamp("us", "UTC" if kind.tz else None))
    if pa.types.is_interval(kind):
        raise SourceError(f"column {name} of type {kind} can be stored in no table; drop it")
    if pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_unsigned_integer(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):  # Spark has no such types
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise SourceError(f"column {name} of type {column.type} has a value above 2^63 - 1; convert it to text or to float") from error
    large = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(), pa.binary_view(): pa.binary()}
    return column.cast(large[kind]) if kind in large else column
