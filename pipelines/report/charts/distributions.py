"""How a column's values are distributed in each split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.report.charts import CHART_WIDTH
from pipelines.report.figures.curves import wilson
from pipelines.report.style import SPLIT_COLOURS

_LONGEST_NAME = 18
"""Letters of a category that a chart shows."""
_NAMES_WIDTH, _SHARES_WIDTH = 118, 44
"""Pixels beside the bars of categories."""
_ROW_HEIGHT, _BAR_STEP = 24, 6


@dataclass(frozen=True)
class SplitBins:
    """Bins of one split, each with its left and right end and its top."""

    colour: str
    is_filled: bool
    bins: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Histogram:
    """How a column's numbers are distributed in each split."""

    title: str
    splits: Sequence[SplitBins]
    ends: tuple[float | str, float | str]
    unit: str
    has_values_below: bool
    has_values_above: bool
    width: int = CHART_WIDTH
    height: int = 120
    top: int = 8
    bottom: int = 102


@dataclass(frozen=True)
class Bar:
    y: float
    width: float
    colour: str
    title: str


@dataclass(frozen=True)
class Category:
    name: str
    short_name: str
    text_y: float
    bars: Sequence[Bar]
    first_share: str
    """Share in the first split."""


@dataclass(frozen=True)
class CategoryChart:
    """How often a column has each value in each split."""

    title: str
    categories: Sequence[Category]
    height: int
    width: int = CHART_WIDTH
    bars_x: int = _NAMES_WIDTH
    bar_height: int = _BAR_STEP - 1


def distribution_chart(chart: Mapping[str, Any], column: str) -> Histogram | CategoryChart:
    """The `chart` of a column in `data.json`."""
    title = f"values of {column} by split"
    return _histogram(chart, title) if chart["kind"] == "bins" else _category_chart(chart, title)


def _highest(shares: Iterable[Sequence[float]]) -> float:
    return max((share for split_shares in shares for share in split_shares), default=0) or 1


def _histogram(chart: Mapping[str, Any], title: str) -> Histogram:
    low, high = chart["ends"]
    has_values_below, has_values_above = (any(beyond[side] for beyond in chart["beyond"].values()) for side in (0, 1))
    histogram = Histogram(title, [], (low, high), chart["unit"], has_values_below, has_values_above)
    shares: Mapping[str, Sequence[float]] = chart["shares"]
    scale = (histogram.bottom - histogram.top) / _highest(shares.values())
    bin_width = histogram.width / len(next(iter(shares.values())))
    splits = [
        SplitBins(
            SPLIT_COLOURS[split],
            split == "train",
            [(place * bin_width, (place + 1) * bin_width, histogram.bottom - share * scale) for place, share in enumerate(split_shares)],
        )
        for split, split_shares in shares.items()
    ]
    return replace(histogram, splits=splits)


def _category_chart(chart: Mapping[str, Any], title: str) -> CategoryChart:
    shares: Mapping[str, Sequence[float]] = chart["shares"]
    scale = (CHART_WIDTH - _NAMES_WIDTH - _SHARES_WIDTH) / _highest(shares.values())
    categories = []
    for place, name in enumerate(chart["names"]):
        top = place * _ROW_HEIGHT
        bars = [
            Bar(
                top + 3 + number * _BAR_STEP,
                max(share * scale, 0.8 if share else 0),
                SPLIT_COLOURS[split],
                f"{split} {share:.2%}{_interval(share, chart['sampled'].get(split))}",
            )
            for number, (split, share) in enumerate((split, split_shares[place]) for split, split_shares in shares.items())
        ]
        short_name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        categories.append(Category(name, short_name or "(empty)", top + 14, bars, f"{next(iter(shares.values()))[place]:.1%}"))
    return CategoryChart(title, categories, max(len(categories), 1) * _ROW_HEIGHT)


def _interval(share: float, sampled_rows: int | None) -> str:
    if not sampled_rows:
        return ""
    low, high = wilson(share * sampled_rows, sampled_rows)
    return f", {low:.1%} to {high:.1%}"
