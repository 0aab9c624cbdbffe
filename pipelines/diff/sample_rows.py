"""The values of single rows of a version: raw ones where they were kept, else encoded ones, as far as encoders have an inverse."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.features import restore_encoder
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.versions import Version, read_stored_columns
from pipelines.diff.column_samples import encode_null, form_of_values, raw_type
from pipelines.diff.row_changes import Places
from pipelines.errors import DatasetError

Row = dict[str, Any]
"""Values by column, with the row's split and position in it under SPLIT_COLUMN and POSITION."""
SPLIT_COLUMN, POSITION = "split", "row"
MOST_COLUMNS = 40
IMPUTED = "missing?"
"""A value that missing ones were replaced by; others may equal it."""


def read_sample_rows(version: Version, places: Places) -> list[Row]:
    """The rows at places of a version, in their order. Raises CorruptError if a part is damaged or gone."""
    values: dict[tuple[str, int], Row] = {}
    for split in dict.fromkeys(split for split, _ in places):
        positions = sorted({position for other, position in places if other == split})
        rows = _raw_rows(version, split, positions) or _decode_rows(version, split, positions)
        values |= {(split, position): row for position, row in zip(positions, rows, strict=True)}
    return [{SPLIT_COLUMN: split, POSITION: position, **values[split, position]} for split, position in places]


def _raw_rows(version: Version, split: str, positions: Sequence[int]) -> list[Row]:
    """None of them if they were not kept, or cannot be read."""
    table: pa.Table | None = None
    with suppress(OSError, DatasetError, pa.ArrowException):
        table = read_raw_rows(version.filesystem, version.root, version.parts(split), positions)
    return [] if table is None else table.select(table.column_names[:MOST_COLUMNS]).to_pylist()


def _decode_rows(version: Version, split: str, positions: Sequence[int]) -> list[Row]:
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
        columns = {name: _decode(version, fitted, arrays[name][inside]) for name, fitted in encoders.items()}
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows or [{} for _ in positions]


def _decode(version: Version, fitted: FittedEncoder, values: np.ndarray) -> list[Any]:
    """Encoded values in the units of the query, or the names of categories; codes that cannot be decoded behind #."""
    encoder = restore_encoder(fitted)
    match form_of_values(encoder, fitted.column):
        case "numbers":
            decoded: list[Any] = encoder.decode(values).tolist()
        case "names":
            names = encoder.names(fitted.column.cardinality or 0)
            decoded = [names[value] for value in values]
        case _:
            decoded = [f"#{value}" for value in values]
    profile = version.manifest.profile.get(fitted.inputs[0], {})
    fill = encode_null(encoder, raw_type(version.manifest, fitted)) if profile.get("nulls") else None
    return [IMPUTED if fill is not None and value == fill else text for value, text in zip(values.tolist(), decoded, strict=True)]
