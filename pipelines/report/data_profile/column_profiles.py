"""Describes each raw column: its type, its encoder and use, what is missing, and how its values are distributed in each split."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.config.features import encoder_settings
from pipelines.data.features import restore_encoder
from pipelines.data.features.encoding import implementation
from pipelines.data.features.raw import is_list, is_text
from pipelines.data.versions.data_profile import TEXT_LENGTH, Survey, ValueCounts, has_marks_only
from pipelines.data.versions.manifest import SPLITS, FittedEncoder
from pipelines.data.versions.schema import schema_from_text
from pipelines.report.data_profile.coding import Bins, Categories, as_numbers, as_texts, count_codes, count_distinct, is_free_text
from pipelines.report.figures.class_curves import wilson

BINS = 24
NAMES = 8
"""Categories that a chart shows, besides all others."""
_TAIL = 0.005
"""Share of the rows below and above the outer bins, which count them as well."""


def encoders_by_column(encoders: Mapping[str, FittedEncoder]) -> dict[str, dict[str, FittedEncoder]]:
    """The encoders of each raw column, by the name of the tensor column that they make."""
    by_column: dict[str, dict[str, FittedEncoder]] = {}
    for name, fitted in encoders.items():
        for column in fitted.inputs:
            by_column.setdefault(column, {})[name] = fitted
    return by_column


def describe_encoder(name: str, fitted: FittedEncoder) -> str:
    """Say how the tensor column `name` comes from its raw columns."""
    column = fitted.column
    shape = f" of shape {list(column.shape)}" if column.shape else ""
    source = "" if fitted.inputs == (name,) else f" from {', '.join(fitted.inputs)}"
    return f"{fitted.feature['encoder']}{source}: {restore_encoder(fitted).method}; {column.dtype}{shape}"


def name_pieces(encoders: Iterable[FittedEncoder]) -> str:
    """Name what the counts of a column with these encoders are of: values, unless one splits them into words or characters."""
    pieces = (implementation(encoder_settings(fitted.feature)).pieces for fitted in encoders)
    return next((name for name in pieces if name != "values"), "values")


def describe_columns(survey: Survey, most: int | None = None) -> list[dict[str, Any]]:
    """A description for JSON of each raw column that an encoder reads, or of `most` of them; targets first."""
    encoders = encoders_by_column(survey.manifest.encoders)
    columns = sorted(encoders, key=lambda column: all(fitted.column.role != "target" for fitted in encoders[column].values()))
    schema = schema_from_text(survey.manifest.raw_schema) if survey.manifest.raw_schema else pa.schema([])
    kinds = {field.name: field.type for field in schema}
    samples = {split: dict(zip(rows.column_names, rows.columns, strict=True)) for split, rows in survey.samples.items()}
    descriptions = []
    for column in columns[:most]:
        fitted_encoders = encoders[column]
        roles = [*(fitted.column.role for fitted in fitted_encoders.values()), *(["key"] if column in survey.config.dataset.key else [])]
        values = {split: rows[column] for split, rows in samples.items() if column in rows}
        descriptions.append({
            "name": column,
            "type": str(kinds.get(column, "")),
            "roles": list(dict.fromkeys(roles)),
            "encoders": [{"name": name, "words": describe_encoder(name, fitted)} for name, fitted in fitted_encoders.items()],
            "distinct_of": name_pieces(fitted_encoders.values()),
            "train": {name: value for name, value in survey.manifest.profile.get(column, {}).items() if name != "most_frequent"},
            "missing": _missing_shares(column, values, survey),
            "chart": _chart(column, kinds.get(column, pa.null()), values, survey),
        })  # fmt: skip
    return descriptions


def _chart(column: str, kind: pa.DataType, values: Mapping[str, pa.ChunkedArray], survey: Survey) -> dict[str, Any] | None:
    """The chart of all splits: from all rows where they were counted, or from the sample."""
    if not values:
        return None
    counts, has_values = survey.counts.get(column), not has_marks_only(next(iter(values.values())).type, kind)
    chart = _chart_from_counts(counts, kind) if counts is not None and has_values else None
    return chart or _chart_from_sample(kind, values, {split: _is_all(split, survey) for split in values})


def _missing_shares(column: str, values: Mapping[str, pa.ChunkedArray], survey: Survey) -> dict[str, dict[str, Any]]:
    """By split, the share of rows without a value, and, where that is of a sample, the 95 % interval of the share of all."""
    shares: dict[str, dict[str, Any]] = {}
    counts, train = survey.counts.get(column), survey.manifest.profile.get(column, {})
    for split, sample in values.items():
        place = SPLITS.index(split)
        missing = int(np.isnan(as_numbers(sample)).sum()) if types.is_floating(sample.type) else int(sample.null_count)
        if counts is not None:
            shares[split] = {"share": float(counts.missing[place] / max(counts.rows[:, place].sum() + counts.missing[place], 1))}
        elif split == SPLITS[0] and train.get("rows"):
            shares[split] = {"share": train["nulls"] / train["rows"]}
        elif _is_all(split, survey):
            shares[split] = {"share": missing / max(len(sample), 1)}
        else:
            shares[split] = {"share": missing / max(len(sample), 1), "interval": list(wilson(missing, len(sample)))}
    return shares


def _is_all(split: str, survey: Survey) -> bool:
    """Whether the sample is the whole split."""
    return len(survey.samples[split]) == survey.manifest.splits[split].rows


def _chart_from_counts(counts: ValueCounts, kind: pa.DataType) -> dict[str, Any] | None:
    """A chart of categories; None for integers with more than a few values, which are drawn as numbers."""
    if types.is_integer(kind):
        if len(counts.values) > NAMES:
            return None
        places = sorted(range(len(counts.values)), key=lambda place: int(counts.values[place]))
    else:
        places = list(range(len(counts.values)))
    if not places:
        return None
    frequent, rare = places[:NAMES], places[NAMES:]
    rows = np.array([*counts.rows[frequent], *([counts.rows[rare].sum(0)] if rare else [])])
    shares = {split: _shares(rows[:, place]) for place, split in enumerate(SPLITS) if counts.rows[:, place].any()}
    names = [*(counts.values[place] for place in frequent), *(["all others"] if rare else [])]
    return {"kind": "names", "names": names, "shares": shares, "sampled": {}}


def _chart_from_sample(kind: pa.DataType, values: Mapping[str, pa.ChunkedArray], is_all: Mapping[str, bool]) -> dict[str, Any] | None:
    """A chart of bins or of categories; None for bytes and nested values."""
    fitted = next(iter(values.values()))
    if has_marks_only(fitted.type, kind) or not len(fitted) - fitted.null_count:
        return None
    if types.is_boolean(fitted.type) or (is_text(fitted.type) and not is_free_text(fitted)):
        chart = _category_shares(values, Categories.fit(as_texts(fitted), NAMES))
    elif is_text(fitted.type):
        chart = _bin_shares(values, f"characters, at most {TEXT_LENGTH}")
    elif types.is_integer(fitted.type) and not is_list(kind) and count_distinct(fitted) <= NAMES:
        numbers = sorted({value for value in fitted.to_pylist() if value is not None})
        chart = _category_shares(values, Categories(tuple(map(str, numbers))))
    else:
        chart = _bin_shares(values, "entries" if is_list(kind) else "", as_date=types.is_temporal(fitted.type))
    return {**chart, "sampled": {split: len(column) - column.null_count for split, column in values.items() if not is_all[split]}}


def _category_shares(values: Mapping[str, pa.ChunkedArray], categories: Categories) -> dict[str, Any]:
    names = [*categories.names, "all others"]
    counts = {split: count_codes(categories.codes(as_texts(column)), len(names))[1:] for split, column in values.items()}
    if not any(split_counts[-1] for split_counts in counts.values()):
        counts, names = {split: split_counts[:-1] for split, split_counts in counts.items()}, names[:-1]
    return {"kind": "names", "names": names, "shares": {split: _shares(split_counts) for split, split_counts in counts.items()}}


def _bin_shares(values: Mapping[str, pa.ChunkedArray], unit: str, as_date: bool = False) -> dict[str, Any]:
    numbers = {split: as_numbers(column) for split, column in values.items()}
    fitted = next(iter(numbers.values()))
    low, high = np.quantile(fitted[np.isfinite(fitted)], [_TAIL, 1 - _TAIL]) if np.isfinite(fitted).any() else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = BINS
    is_countable = high - low < 2**53  # beyond, float64 does not have every integer
    if are_integers := is_countable and all(np.array_equal(column, np.round(column), equal_nan=True) for column in numbers.values()):
        low, width = np.floor(low), np.ceil((high - low + 1) / BINS)  # else some bins hold more integers than others
        bins = int(np.ceil((high - low + 1) / width))
        high = low + bins * width
    inner = 2 * np.linspace(low / 2, high / 2, bins + 1)[1:-1]  # halved, since the width may exceed the largest float64
    codes = {split: Bins(inner).codes(column) for split, column in numbers.items()}
    shares = {split: _shares(count_codes(split_codes, bins)[1:]) for split, split_codes in codes.items()}
    last = high - 1 if are_integers else high
    ends = [_date(end) if as_date else float(end) for end in (low, last)]
    beyond = {}
    for split, column in numbers.items():  # the outer bins count these values as well
        present = column[~np.isnan(column)]
        sides = (present < float(low), present > float(last))
        beyond[split] = [round(float(side.mean()), 5) if len(present) else 0.0 for side in sides]
    return {"kind": "bins", "ends": ends, "unit": unit, "shares": shares, "beyond": beyond}


def _shares(counts: np.ndarray) -> list[float]:
    return [round(float(share), 5) for share in counts / max(counts.sum(), 1)]


def _date(days: float) -> str:
    """The day so many days after 1970-01-01, or the nearest that Python has: bins may end before the year 1 or after the year 9999."""
    day = date(1970, 1, 1).toordinal() + int(np.floor(days))
    return date.fromordinal(min(max(day, date.min.toordinal()), date.max.toordinal())).isoformat()
