"""Figures of a plan: what steps and memory of candidates consist of, and hours and costs of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.report.charts import INK, RED, tick_label
from pipelines.report.figures.canvas import UndefinedError, colour, drawing, shorten

_BAR_INCHES, _AROUND_INCHES = 0.32, 1.5
"""Height of a bar, and of what stands above and below all of them."""
_SMALLEST = 1e-9
"""A part below this share of the longest bar is not drawn."""


@dataclass(frozen=True)
class PartBar:
    """A bar of a candidate."""

    label: str
    parts: Mapping[str, float]
    limit: float | None = None
    """What the parts may be together."""


@dataclass(frozen=True)
class CostPoint:
    """Hours and cost of a candidate."""

    hardware: str
    hours: float
    cost: float
    best: str = ""
    """Of which kind it is the best."""


def part_bars(bars: Sequence[PartBar], unit: str) -> bytes:
    """The SVG of bars below each other, in parts of the same colours, with a line at each limit. Raises UndefinedError without bars."""
    if not bars:
        raise UndefinedError("there is no candidate")
    longest = max(sum(bar.parts.values()) for bar in bars)
    names = [name for name in bars[0].parts if any(bar.parts[name] > _SMALLEST * longest for bar in bars)]
    places = np.arange(len(bars))
    with drawing(inches=(8.6, _BAR_INCHES * len(bars) + _AROUND_INCHES)) as canvas:
        canvas.margin, canvas.top = 0.43, 0.84
        plot = canvas.axes[0]
        starts = np.zeros(len(bars))
        for number, name in enumerate(names):
            values = np.array([bar.parts[name] for bar in bars])
            plot.barh(places, values, 0.62, starts, color=colour(number), label=name)
            starts += values
        for place, bar in zip(places, bars, strict=True):
            if bar.limit is not None:
                plot.plot([bar.limit, bar.limit], [place - 0.42, place + 0.42], color=INK, linewidth=1.4)
        plot.set(yticks=places, xlabel=unit, xlim=(0, None))
        plot.set_yticklabels([shorten(bar.label, 50) for bar in bars], fontsize=7.5)
        plot.invert_yaxis()
        plot.grid(axis="y", visible=False)
        plot.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.1)
    return canvas.svg


def cost_points(points: Sequence[CostPoint], currency: str) -> bytes:
    """The SVG of a point for each candidate, in the colour of its hardware, on axes by orders of magnitude; the best of a kind is named.
    Raises UndefinedError without points, or if none costs anything."""
    priced_points = [point for point in points if point.hours > 0 and point.cost > 0]
    if not priced_points:
        raise UndefinedError("hours or costs are unknown")
    with drawing(inches=(8.6, 3.8)) as canvas:
        canvas.margin = 0.1
        plot = canvas.axes[0]
        for number, hardware in enumerate(dict.fromkeys(point.hardware for point in priced_points)):
            of_hardware = [point for point in priced_points if point.hardware == hardware]
            hours, costs = [point.hours for point in of_hardware], [point.cost for point in of_hardware]
            plot.scatter(hours, costs, 16, colour(number), alpha=0.6, linewidths=0, label=shorten(hardware, 24))
        labels: dict[tuple[float, float], list[str]] = {}
        for point in priced_points:
            if point.best:
                labels.setdefault((point.hours, point.cost), []).append(point.best)
        for place, names in labels.items():
            ring: Any = {"facecolors": "none", "edgecolors": RED, "linewidths": 1.6, "zorder": 3}
            plot.scatter([place[0]], [place[1]], 70, **ring)
            plot.annotate(", ".join(names), place, (6, 6), textcoords="offset points", fontsize=8, color=RED)
        plot.set(xscale="log", yscale="log", xlabel="expected hours", ylabel=currency)
        for axis in (plot.xaxis, plot.yaxis):
            axis.set_major_formatter(lambda value, place: tick_label(value))
            axis.set_minor_formatter(lambda value, place: tick_label(value))
        plot.legend(loc="best")
    return canvas.svg
