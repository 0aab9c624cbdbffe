"""Describes each raw column: its type and use, what is missing, and how its values are distributed in each split."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.raw import is_list, is_text
from pipelines.data.versions.data_profile import TEXT_LENGTH, Survey, ValueCounts
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.schema import schema_from_text
from pipelines.report.data_profile.coding import MISSING, Named, as_numbers, as_texts, counted, distinct, is_free_text
from pipelines.report.data_profile.words import in_words
from pipelines.report.figures.curves import wilson

BINS = 24
NAMES = 8
"""Categories that a chart shows, besides all others."""
_TAIL = 0.005
"""Share of the rows below and above the outer bins, which count them as well."""


def described_columns(survey: Survey, most: int | None = None) -> list[dict[str, Any]]:
    """For JSON, a description of each raw column that an encoder reads, or of `most` of them; targets first."""
    manifest, key = survey.manifest, survey.config.dataset.key
    schema = schema_from_text(manifest.raw_schema) if manifest.raw_schema else pa.schema([])
    kinds = {field.name: field.type for field in schema}
    uses: dict[str, list[str]] = {}
    for name, fitted in manifest.encoders.items():
        for column in fitted.inputs:
            uses.setdefault(column, []).append(name)
    shown = sorted(uses, key=lambda column: all(manifest.encoders[name].column.role != "target" for name in uses[column]))[:most]
    samples = {split: dict(zip(rows.column_names, rows.columns, strict=True)) for split, rows in survey.samples.items()}
    return [
        {
            "name": column,
            "type": str(kinds.get(column, "")),
            "roles": [*dict.fromkeys(manifest.encoders[name].column.role for name in names), *(["key"] if column in key else [])],
            "encoders": [{"name": name, "words": in_words(name, manifest.encoders[name])} for name in names],
            "distinct_of": "words" if any(manifest.encoders[name].feature.get("encoder") == "sequence" for name in names) else "values",
            "train": {name: value for name, value in manifest.profile.get(column, {}).items() if name != "most_frequent"},
            **_values(column, kinds.get(column, pa.null()), _by_split(column, samples), survey),
        }
        for column, names in ((column, uses[column]) for column in shown)
    ]


def _by_split(column: str, samples: Mapping[str, Mapping[str, pa.ChunkedArray]]) -> dict[str, pa.ChunkedArray]:
    return {split: rows[column] for split, rows in samples.items() if column in rows}


def _values(column: str, kind: pa.DataType, values: Mapping[str, pa.ChunkedArray], survey: Survey) -> dict[str, Any]:
    """What is missing and how values are distributed, in each split: from all rows where they were counted, or from the sample."""
    counts = survey.counts.get(column)
    chart = None
    if values:
        handed = next(iter(values.values())).type
        is_shown = counts is not None and not (types.is_boolean(handed) and not types.is_boolean(kind))
        chart = _counted_chart(counts, kind) if counts is not None and is_shown else None
        chart = chart or next(_charts(kind, values, {split: _is_all(split, survey) for split in values}), None)
    return {"missing": _missing_shares(column, values, survey), "chart": chart}


def _missing_shares(column: str, values: Mapping[str, pa.ChunkedArray], survey: Survey) -> dict[str, dict[str, Any]]:
    """By split, the share of rows without a value, and, where that is of a sample, the 95 % interval of the share of all."""
    found: dict[str, dict[str, Any]] = {}
    counts, train = survey.counts.get(column), survey.manifest.profile.get(column, {})
    for split, sample in values.items():
        place = SPLITS.index(split)
        missing = _missing(sample)
        if counts is not None:
            found[split] = {"share": float(counts.missing[place] / max(counts.rows[:, place].sum() + counts.missing[place], 1))}
        elif split == SPLITS[0] and train.get("rows"):
            found[split] = {"share": train["nulls"] / train["rows"]}
        elif _is_all(split, survey):
            found[split] = {"share": missing / max(len(sample), 1)}
        else:
            found[split] = {"share": missing / max(len(sample), 1), "interval": list(wilson(missing, len(sample)))}
    return found


def _is_all(split: str, survey: Survey) -> bool:
    """Whether the sample is the whole split."""
    return len(survey.samples[split]) == survey.manifest.splits[split].rows


def _missing(values: pa.ChunkedArray) -> int:
    return int(np.isnan(as_numbers(values)).sum()) if types.is_floating(values.type) else int(values.null_count)


def _counted_chart(counts: ValueCounts, kind: pa.DataType) -> dict[str, Any] | None:
    """Of categories whose rows are all counted; None for integers with more than a few values, which are drawn as numbers."""
    if types.is_integer(kind):
        if len(counts.values) > NAMES:
            return None
        places = sorted(range(len(counts.values)), key=lambda place: int(counts.values[place]))
    else:
        places = list(range(len(counts.values)))
    if not places:
        return None
    shown, others = places[:NAMES], places[NAMES:]
    rows = [counts.rows[place] for place in shown] + ([counts.rows[others].sum(0)] if others else [])
    splits = [(place, split) for place, split in enumerate(SPLITS) if counts.rows[:, place].any()]
    shares = {split: _shares(np.array([each[place] for each in rows])) for place, split in splits}
    names = [*(counts.values[place] for place in shown), *(["all others"] if others else [])]
    return {"kind": "names", "names": names, "shares": shares, "sampled": {}}


def _charts(kind: pa.DataType, values: Mapping[str, pa.ChunkedArray], is_all: Mapping[str, bool]) -> Iterator[dict[str, Any]]:
    """What there is to draw of a sample: bins of numbers, or named categories; nothing of bytes and nested values."""
    fitted = next(iter(values.values()))
    if (types.is_boolean(fitted.type) and not types.is_boolean(kind)) or not len(fitted) - fitted.null_count:
        return
    sampled = {split: len(found) - found.null_count for split, found in values.items() if not is_all[split]}
    if types.is_boolean(fitted.type) or (is_text(fitted.type) and not is_free_text(fitted)):
        yield {**_named(values, Named.of(as_texts(fitted), NAMES)), "sampled": sampled}
    elif is_text(fitted.type):
        yield {**_bins(values, f"characters, at most {TEXT_LENGTH}"), "sampled": sampled}
    elif types.is_integer(fitted.type) and not is_list(kind) and distinct(fitted) <= NAMES:
        numbers = sorted({value for value in fitted.to_pylist() if value is not None})
        yield {**_named(values, Named(tuple(map(str, numbers)))), "sampled": sampled}
    else:
        yield {**_bins(values, "entries" if is_list(kind) else "", as_date=types.is_temporal(fitted.type)), "sampled": sampled}


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
    last = high - 1 if whole else high
    ends = [_date(end) if as_date else float(end) for end in (low, last)]
    beyond = {split: _beyond(found[~np.isnan(found)], float(low), float(last)) for split, found in numbers.items()}
    return {"kind": "bins", "ends": ends, "unit": unit, "shares": shares, "beyond": beyond}


def _beyond(values: np.ndarray, low: float, high: float) -> list[float]:
    """The shares of values below and above the ends of a chart, whose outer bins count them as well."""
    return [round(float(side.mean()), 5) if len(values) else 0.0 for side in (values < low, values > high)]


def _shares(counts: np.ndarray) -> list[float]:
    return [round(float(share), 5) for share in counts / max(counts.sum(), 1)]


def _date(days: float) -> str:
    """The day so many days after 1970-01-01, or the nearest that Python has: bins may end before the year 1 or after the year 9999."""
    day = date(1970, 1, 1).toordinal() + int(np.floor(days))
    return date.fromordinal(min(max(day, date.min.toordinal()), date.max.toordinal())).isoformat()
