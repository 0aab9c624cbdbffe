"""Draws how a column's values are distributed in each split, as inline SVG."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.report.figures.curves import wilson
from pipelines.report.page import Html, text
from pipelines.report.style import BLUE, GREEN, GREY, INK, LINE, ORANGE

SPLIT_COLOURS = {"train": BLUE, "validation": ORANGE, "test": GREEN}
WIDTH = 340
_HEIGHT, _TOP, _BOTTOM = 120, 8, 18
_ROW, _BAR, _NAMES_WIDTH = 24, 6, 118


def histogram(chart: Mapping[str, Any], name: str) -> Html:
    """The `chart` of a described column."""
    return _bins(chart, name) if chart["kind"] == "bins" else _names(chart, name)


def _bins(chart: Mapping[str, Any], name: str) -> Html:
    """Train as filled bars, the other splits as outlines over them."""
    shares: Mapping[str, Sequence[float]] = chart["shares"]
    most = max((share for found in shares.values() for share in found), default=0) or 1
    count = len(next(iter(shares.values())))
    step, floor = WIDTH / count, _HEIGHT - _BOTTOM
    parts = [f'<line x1="0" x2="{WIDTH}" y1="{floor}" y2="{floor}" stroke="{LINE}"/>']
    for split, found in shares.items():
        tops = [floor - share / most * (floor - _TOP) for share in found]
        if split == "train":
            parts += [
                f'<rect x="{place * step + 0.5:.1f}" y="{top:.1f}" width="{step - 1:.1f}" height="{floor - top:.1f}" '
                f'fill="{BLUE}" fill-opacity="0.45"/>'
                for place, top in enumerate(tops)
            ]
        else:
            path = "".join(f"L{place * step:.1f} {top:.1f}H{(place + 1) * step:.1f}" for place, top in enumerate(tops))
            parts.append(f'<path d="M0 {floor}{path}V{floor}" fill="none" stroke="{SPLIT_COLOURS[split]}" stroke-width="1.6"/>')
    low, high = (text(end) for end in chart["ends"])
    below, above = (any(found[side] for found in chart["beyond"].values()) for side in (0, 1))
    parts += [_beyond(0)] if below else []
    parts += [_beyond(WIDTH)] if above else []
    parts.append(f'<text x="0" y="{_HEIGHT - 4}" fill="{GREY}">{"≤ " if below else ""}{low}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{_HEIGHT - 4}" fill="{GREY}" text-anchor="middle">{text(chart["unit"])}</text>')
    parts.append(f'<text x="{WIDTH}" y="{_HEIGHT - 4}" fill="{GREY}" text-anchor="end">{"≥ " if above else ""}{high}</text>')
    return _svg(parts, _HEIGHT, name)


def _beyond(end: float) -> str:
    """An arrow at an end of the axis beyond which there are values."""
    y, inwards = _HEIGHT - _BOTTOM, 7 if end == 0 else -7
    return f'<path d="M{end} {y}l{inwards} -4v8z" fill="{GREY}"><title>values beyond this end are in the outer bar</title></path>'


def _names(chart: Mapping[str, Any], name: str) -> Html:
    """For each category a bar for each split."""
    shares: Mapping[str, Sequence[float]] = chart["shares"]
    most = max((share for found in shares.values() for share in found), default=0) or 1
    room = WIDTH - _NAMES_WIDTH - 44
    parts = []
    for place, category in enumerate(chart["names"]):
        top = place * _ROW
        short = category if len(category) <= 18 else f"{category[:17]}…"
        parts.append(f'<text x="0" y="{top + 14}" fill="{INK}">{text(short or "(empty)")}<title>{text(category)}</title></text>')
        for number, (split, found) in enumerate(shares.items()):
            width = max(found[place] / most * room, 0.8 if found[place] else 0)
            parts.append(
                f'<rect x="{_NAMES_WIDTH}" y="{top + 3 + number * _BAR}" width="{width:.1f}" height="{_BAR - 1}" '
                f'fill="{SPLIT_COLOURS[split]}"><title>{split} {found[place]:.2%}{_interval(chart, split, found[place])}</title></rect>'
            )
        first = next(iter(shares.values()))[place]
        parts.append(f'<text x="{WIDTH}" y="{top + 14}" fill="{GREY}" text-anchor="end">{first:.1%}</text>')
    return _svg(parts, max(len(chart["names"]) * _ROW, _ROW), name)


def _interval(chart: Mapping[str, Any], split: str, share: float) -> str:
    rows = chart["sampled"].get(split)
    if not rows:
        return ""
    low, high = wilson(share * rows, rows)
    return f", {low:.1%} to {high:.1%}"


def _svg(parts: Sequence[str], height: float, title: str) -> Html:
    font = 'font-family="system-ui, sans-serif" font-size="11"'
    return Html(
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(f"values of {title} by split")}" {font}>{"".join(parts)}</svg>'
    )


def legend(splits: Sequence[str]) -> Html:
    """Which colour is which split."""
    marks = (
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:0.8em;height:0.8em;background:{SPLIT_COLOURS[split]}">'
        f"</span> {text(split)}</span>"
        for split in splits
    )
    return Html(" &nbsp; ".join(marks))
