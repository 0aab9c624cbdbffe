"""Describes each raw column: its type and use, what is missing, and how its values are distributed in each split."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.dataset.manifest import Manifest
from pipelines.dataset.schema import schema_from_text
from pipelines.dataset.survey import TEXT_LENGTH
from pipelines.features.raw import is_list, is_text
from pipelines.report.survey.coding import MISSING, Named, as_numbers, as_texts, counted, distinct, is_free_text
from pipelines.report.survey.words import in_words

BINS = 24
NAMES = 8
"""Categories that a chart shows, besides all others."""
_TAIL = 0.005
"""Share of the rows below and above the outer bins, which count them as well."""


def described_columns(manifest: Manifest, samples: Mapping[str, pa.Table], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """For JSON, a description of each raw column that an encoder reads; targets first."""
    schema = schema_from_text(manifest.raw_schema) if manifest.raw_schema else pa.schema([])
    kinds = {field.name: field.type for field in schema}
    uses: dict[str, list[str]] = {}
    for name, fitted in manifest.encoders.items():
        for column in fitted.inputs:
            uses.setdefault(column, []).append(name)
    found = [
        {
            "name": column,
            "type": str(kinds.get(column, "")),
            "roles": [*dict.fromkeys(manifest.encoders[name].column.role for name in names), *(["key"] if column in key else [])],
            "encoders": [{"name": name, "words": in_words(name, manifest.encoders[name])} for name in names],
            "distinct_of": "words" if any(manifest.encoders[name].feature.get("encoder") == "sequence" for name in names) else "values",
            "train": {name: value for name, value in manifest.profile.get(column, {}).items() if name != "most_frequent"},
            **_sampled(column, kinds.get(column, pa.null()), samples),
        }
        for column, names in uses.items()
    ]
    return sorted(found, key=lambda column: "target" not in column["roles"])


def _sampled(column: str, kind: pa.DataType, samples: Mapping[str, pa.Table]) -> dict[str, Any]:
    values = {split: rows[column] for split, rows in samples.items() if column in rows.column_names}
    missing = {split: _missing(found) for split, found in values.items()}
    chart = next(_charts(kind, values), None) if values else None
    return {"missing": missing, "chart": chart}


def _missing(values: pa.ChunkedArray) -> float:
    absent = np.isnan(as_numbers(values)).sum() if types.is_floating(values.type) else values.null_count
    return float(absent) / max(len(values), 1)


def _charts(kind: pa.DataType, values: Mapping[str, pa.ChunkedArray]) -> Iterator[dict[str, Any]]:
    """What there is to draw: bins of numbers, or named categories; nothing of bytes and nested values."""
    fitted = next(iter(values.values()))
    if (types.is_boolean(fitted.type) and not types.is_boolean(kind)) or not len(fitted) - fitted.null_count:
        return
    if types.is_boolean(fitted.type) or (is_text(fitted.type) and not is_free_text(fitted)):
        yield _named(values, Named.of(as_texts(fitted), NAMES))
    elif is_text(fitted.type):
        yield _bins(values, f"characters, at most {TEXT_LENGTH}")
    elif types.is_integer(fitted.type) and not is_list(kind) and distinct(fitted) <= NAMES:
        numbers = sorted({value for value in fitted.to_pylist() if value is not None})
        yield _named(values, Named(tuple(map(str, numbers))))
    else:
        yield _bins(values, "entries" if is_list(kind) else "", as_date=types.is_temporal(fitted.type))


def _named(values: Mapping[str, pa.ChunkedArray], named: Named) -> dict[str, Any]:
    size = len(named.names) + 1
    counts = {split: counted(named.codes(as_texts(column)), size)[1:] for split, column in values.items()}
    shares = {split: _shares(found) for split, found in counts.items()}
    if not any(found[-1] for found in counts.values()):
        shares, names = {split: found[:-1] for split, found in shares.items()}, list(named.names)
    else:
        names = [*named.names, "all others"]
    return {"kind": "names", "names": names, "shares": shares}


def _bins(values: Mapping[str, pa.ChunkedArray], unit: str, as_date: bool = False) -> dict[str, Any]:
    numbers = {split: as_numbers(column) for split, column in values.items()}
    fitted = next(iter(numbers.values()))
    low, high = np.quantile(fitted[np.isfinite(fitted)], [_TAIL, 1 - _TAIL]) if np.isfinite(fitted).any() else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = BINS
    is_countable = high - low < 2**53  # beyond, float64 does not have every integer
    if whole := is_countable and all(np.array_equal(found, np.round(found), equal_nan=True) for found in numbers.values()):
        low, width = np.floor(low), np.ceil((high - low + 1) / BINS)  # else some bins hold more integers than others
        bins = int(np.ceil((high - low + 1) / width))
        high = low + bins * width
    inner = 2 * np.linspace(low / 2, high / 2, bins + 1)[1:-1]  # halved, since the width may exceed the largest float64
    codes = {split: np.where(np.isnan(found), MISSING, np.searchsorted(inner, found, side="right")) for split, found in numbers.items()}
    shares = {split: _shares(counted(found, bins)[1:]) for split, found in codes.items()}
    ends = [_date(end) if as_date else float(end) for end in (low, high - 1 if whole else high)]
    return {"kind": "bins", "ends": ends, "unit": unit, "shares": shares}


def _shares(counts: np.ndarray) -> list[float]:
    return [round(float(share), 5) for share in counts / max(counts.sum(), 1)]


def _date(days: float) -> str:
    """The day so many days after 1970-01-01, or the nearest that Python has: bins may end before the year 1 or after the year 9999."""
    day = date(1970, 1, 1).toordinal() + int(np.floor(days))
    return date.fromordinal(min(max(day, date.min.toordinal()), date.max.toordinal())).isoformat()
