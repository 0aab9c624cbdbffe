"""Colours of all pages and figures, and the axes and points of charts. `templates/charts.html` draws them as inline SVG.

The colours are those of Okabe and Ito (2008), "Color universal design". People with any common colour blindness tell them apart, and the
first ones also differ in grey print.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

INK, GREY, PALE, LINE = "#1b1b1f", "#5c5f66", "#f4f5f7", "#d5d8dd"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000"),
)
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
"""The colours of series, in this order; yellow is left out, since it is too pale for lines on white."""
SPLIT_COLOURS = {"train": BLUE, "validation": ORANGE, "test": GREEN}

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
class Axis:
    """From `low` to `high`, with a tick at every multiple of `step`."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Axis":
        """The round axis that holds the values, as far as ±1e300, with three to six ticks."""
        values = list(values)
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
        """How far along the axis a value lies: 0 is its low end, 1 its high one. Values beyond an end lie at it."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class LineChart:
    """Curves over shared axes, by their names."""

    series: Mapping[str, Points]
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    x_axis: Axis | None = None
    """None without any point."""
    y_axis: Axis | None = None


def line_chart(series: Mapping[str, Points], x_label: str = "", y_label: str = "", marks: Sequence[Mark] = ()) -> LineChart:
    """Curves that are named by the keys. An empty series is left out; without any point the chart says so."""
    lines: dict[str, Points] = {}
    for name, points in series.items():
        finite = [point for point in points if all(map(isfinite, point))]
        stride = ceil(len(finite) / _MOST_POINTS)
        lines[name] = finite if stride <= 1 else [*finite[:-1:stride], finite[-1]]
    all_points = [point for line in lines.values() for point in line]
    axes = [Axis.over(coordinates) for coordinates in zip(*all_points, strict=True)]
    return LineChart(lines, x_label, y_label, marks, *axes)


def tick_label(value: float) -> str:
    """A tick in few letters: thousands, millions and billions as k, M and G."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(factor, 1e4):
            return f"{value / factor:.4g}{unit}".replace("-", "−")
    return f"{round(value, 12):.4g}".replace("-", "−")
