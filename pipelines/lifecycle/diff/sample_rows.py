"""The values of single rows of a version: raw ones where they were kept, else encoded ones, as far as encoders have an inverse."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.features import restore_encoder
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.versions import Version, read_stored_columns
from pipelines.errors import DatasetError
from pipelines.lifecycle.diff.row_changes import Places

Row = dict[str, Any]
"""Values by column, with the row's split and position in it under SPLIT_COLUMN and POSITION."""
SPLIT_COLUMN, POSITION = "split", "row"
MOST_COLUMNS = 40


def read_rows(version: Version, places: Places) -> list[Row]:
    """The rows at places of a version, in their order. Raises CorruptError if a part is damaged or gone."""
    values: dict[tuple[str, int], Row] = {}
    for split in dict.fromkeys(split for split, _ in places):
        positions = sorted({position for other, position in places if other == split})
        rows = _raw_rows(version, split, positions) or _decoded_rows(version, split, positions)
        values |= {(split, position): row for position, row in zip(positions, rows, strict=True)}
    return [{SPLIT_COLUMN: split, POSITION: position, **values[split, position]} for split, position in places]


def _raw_rows(version: Version, split: str, positions: Sequence[int]) -> list[Row]:
    """None of them if they were not kept, or cannot be read."""
    table: pa.Table | None = None
    with suppress(OSError, DatasetError, pa.ArrowException):
        table = read_raw_rows(version.filesystem, version.root, version.manifest.attempt, split, positions)
    return [] if table is None else table.select(table.column_names[:MOST_COLUMNS]).to_pylist()


def _decoded_rows(version: Version, split: str, positions: Sequence[int]) -> list[Row]:
    encoders = {name: fitted for name, fitted in version.manifest.encoders.items() if not fitted.column.shape}
    encoders = dict(list(encoders.items())[:MOST_COLUMNS])
    rows: list[Row] = []
    start = 0
    for group in version.split_row_groups(split):
        inside = np.array([position - start for position in positions if start <= position < start + group.rows], np.int64)
        start += group.rows
        if not len(inside) or not encoders:
            continue
        (arrays,) = read_stored_columns(version.filesystem, version.root, [group], [fitted.column for fitted in encoders.values()])
        columns = {}
        for name, fitted in encoders.items():
            encoder, taken = restore_encoder(fitted), arrays[name][inside]
            is_category = fitted.column.cardinality is not None
            columns[name] = (
                [encoder.names(fitted.column.cardinality or 0)[value] for value in taken] if is_category else encoder.decode(taken).tolist()
            )
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows or [{} for _ in positions]
