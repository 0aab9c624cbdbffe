"""Small charts as inline SVG. Their text keeps its size on a telephone: a chart is 340 units wide, about its width in pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from pipelines.report.page import Html, text
from pipelines.report.style import COLOURS, GREY, INK, LINE

WIDTH, HEIGHT = 340, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 24, 34
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


def lines(series: Mapping[str, Points], x_label: str = "", y_label: str = "", marks: Sequence[Mark] = ()) -> Html:
    """Curves over a shared axis, named by the keys. An empty series is left out; without any point the chart says so."""
    found = {name: _thinned([point for point in points if all(map(isfinite, point))]) for name, points in series.items()}
    shown = [point for points in found.values() for point in points]
    if not shown:
        return _svg(f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">no points yet</text>', y_label)
    xs, ys = Axis.over([x for x, _ in shown]), Axis.over([y for _, y in shown])
    parts = [_frame(xs, ys, x_label, y_label), *(_mark(mark, xs) for mark in marks)]
    for number, (name, points) in enumerate(found.items()):
        if not points:
            continue
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_across(xs, x):.1f},{_up(ys, y):.1f}" for x, y in points)
        dots = "".join(f'<circle cx="{_across(xs, x):.1f}" cy="{_up(ys, y):.1f}" r="2.4" fill="{colour}"/>' for x, y in points)
        parts += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>', dots if len(points) <= 12 else ""]
        if len(found) > 1:
            parts.append(_legend(number, name, colour))
    return _svg("".join(parts), y_label or ", ".join(found))


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


def _across(axis: Axis, x: float) -> float:
    return _LEFT + axis.share(x) * (WIDTH - _LEFT - _RIGHT)


def _up(axis: Axis, y: float) -> float:
    return HEIGHT - _BOTTOM - axis.share(y) * (HEIGHT - _TOP - _BOTTOM)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `_MOST_POINTS`, the last one among them."""
    stride = ceil(len(points) / _MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _frame(xs: Axis, ys: Axis, x_label: str, y_label: str) -> str:
    """Ticks of both axes, and their names."""
    parts = []
    for tick in ys.ticks:
        y = _up(ys, tick)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_label(_LEFT - 5, y + 3.5, _tick(tick), "end"))
    parts.extend(_label(_across(xs, tick), HEIGHT - _BOTTOM + 14, _tick(tick), "middle") for tick in xs.ticks)
    parts.append(_label((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 4, x_label, "middle"))
    parts.append(_label(4, 9, y_label, "start", INK))
    return "".join(parts)


def _tick(value: float) -> str:
    if abs(value) >= 1e4:
        for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= factor:
                return f"{value / factor:.4g}{unit}".replace("-", "−")
    return f"{round(value, 12):.4g}".replace("-", "−")


def _mark(mark: Mark, xs: Axis) -> str:
    x = _across(xs, min(max(mark.x, xs.low), xs.high))
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="{mark.colour}" stroke-dasharray="4 3"/>'
    return f"<g>{line}<title>{text(mark.label)}</title></g>"


def _legend(number: int, name: str, colour: str) -> str:
    y = _TOP + 10 + 14 * number
    swatch = f'<rect x="{WIDTH - _RIGHT - 8}" y="{y - 8}" width="8" height="8" fill="{colour}"/>'
    return swatch + _label(WIDTH - _RIGHT - 12, y, name[:28], "end", INK)


def _label(x: float, y: float, label: str, place: str, colour: str = GREY) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{place}" fill="{colour}">{text(label)}</text>' if label else ""


def _svg(content: str, title: str) -> Html:
    font = 'font-family="system-ui, sans-serif" font-size="11"'
    return Html(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}" {font}>{content}</svg>')
