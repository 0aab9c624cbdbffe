"""Curves over a shared axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log10

from pipelines.report.charts import CHART_WIDTH
from pipelines.report.style import COLOURS, GREY

_MOST_POINTS = 600
"""Points of a line: more would not be seen, and make the page large."""
_LARGEST, _SMALLEST = 1e300, 1e-300
"""What an axis reaches to, and the least that it spans: far enough from the limits of float64 to compute ticks."""

Points = Sequence[tuple[float, float]]
"""(x, y) in the order of x; those that are not finite are left out."""


@dataclass(frozen=True)
class Mark:
    """A vertical line at `x`, with a few words."""

    x: float
    label: str
    colour: str = GREY


@dataclass(frozen=True)
class Tick:
    position: float
    label: str


@dataclass(frozen=True)
class Line:
    name: str
    colour: str
    points: Points
    legend_y: float = 0
    """0 if the chart has no legend."""


@dataclass(frozen=True)
class LineChart:
    """Curves over a shared axis."""

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    marks: Sequence[Mark] = ()
    lines: Sequence[Line] = ()
    width: int = CHART_WIDTH
    height: int = 220
    left: int = 46
    right: int = CHART_WIDTH - 12
    top: int = 24
    bottom: int = 186


def line_chart(series: Mapping[str, Points], x_label: str = "", y_label: str = "", marks: Sequence[Mark] = ()) -> LineChart:
    """Curves that are named by the keys. An empty series is left out; without any point the chart says so."""
    finite = {name: _sample([point for point in points if all(map(isfinite, point))]) for name, points in series.items()}
    chart = LineChart(y_label or ", ".join(series), x_label, y_label)
    every_point = [point for points in finite.values() for point in points]
    if not every_point:
        return chart
    xs, ys = Axis.over([x for x, _ in every_point]), Axis.over([y for _, y in every_point])

    def across(x: float) -> float:
        return chart.left + xs.share(x) * (chart.right - chart.left)

    def up(y: float) -> float:
        return chart.bottom - ys.share(y) * (chart.bottom - chart.top)

    lines = [
        Line(
            name,
            COLOURS[number % len(COLOURS)],
            [(across(x), up(y)) for x, y in points],
            legend_y=chart.top + 10 + 14 * number if len(finite) > 1 else 0,
        )
        for number, (name, points) in enumerate(finite.items())
    ]
    return replace(
        chart,
        x_ticks=[Tick(across(tick), _tick_label(tick)) for tick in xs.ticks],
        y_ticks=[Tick(up(tick), _tick_label(tick)) for tick in ys.ticks],
        marks=[replace(mark, x=across(min(max(mark.x, xs.low), xs.high))) for mark in marks],
        lines=[line for line in lines if line.points],
    )


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with a tick at every multiple of `step`."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Axis":
        """The round axis that holds the values, as far as ±1e300, with three to six ticks."""
        low, high = (min(max(end, -_LARGEST), _LARGEST) for end in (min(values), max(values)))
        if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST):
            reach = abs(high) / 2 or 1.0
            low, high = low - reach, high + reach
        rough = (high - low) / 4
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        return cls(floor(low / step) * step, ceil(high / step) * step, step)

    @property
    def ticks(self) -> list[float]:
        return [self.low + number * self.step for number in range(round((self.high - self.low) / self.step) + 1)]

    def share(self, value: float) -> float:
        """How far along the axis a value lies: 0 is its low end, 1 its high one."""
        return (value - self.low) / (self.high - self.low)


def _sample(points: Points) -> Points:
    """At most `_MOST_POINTS`, the last one among them."""
    stride = ceil(len(points) / _MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _tick_label(value: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(factor, 1e4):
            return f"{value / factor:.4g}{unit}".replace("-", "−")
    return f"{round(value, 12):.4g}".replace("-", "−")
