"""Fits the encoders to what the pass over the rows has gathered, and describes the raw columns."""

from collections.abc import Mapping
from typing import Any

from pipelines.data.features import fit_encoders
from pipelines.data.features.auto.choice import Choice, settle
from pipelines.data.features.statistics import Statistics
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.etl.quality import check_rows_left
from pipelines.etl.splits.splits import check_splits
from pipelines.etl.statistics.gather import RowSummary

_MOST_FREQUENT = 10


def fit_columns(summary: RowSummary, choice: Choice, handed_on: Mapping[str, int]) -> tuple[Choice, dict[str, FittedEncoder]]:
    """Settle what was chosen for `auto`, and fit the encoders. `handed_on` are the rows of each table that the query reads.

    Raises SourceError if no row is left, or a split that the config asks for has none, ConfigError if the rows cannot fit an encoder.
    """
    check_rows_left(handed_on, summary.query_rows, summary.refused)
    check_splits(summary.rows, choice.dataset.split)
    settled = settle(choice, summary.statistics, summary.missing, sum(summary.rows.values())) if choice.columns else choice
    return settled, fit_encoders(settled.dataset, summary.statistics, summary.schema)


def column_profile(statistics: Statistics) -> dict[str, Any]:
    """A profile of a raw column, for JSON."""
    profile: dict[str, Any] = {"rows": statistics.rows, "nulls": statistics.nulls}
    if statistics.mean is not None:
        profile |= {name: getattr(statistics, name) for name in ("mean", "deviation", "minimum", "maximum")}
    if statistics.infinite:
        profile["infinite"] = statistics.infinite
    if statistics.counts is not None:
        frequent = statistics.counts.slice(0, _MOST_FREQUENT)
        profile |= {"distinct": statistics.distinct, "most_frequent": dict(zip(*frequent.to_pydict().values(), strict=True))}
    return profile
