"""What happened to a run: restarts, resizes, silences, and what its tags tell, such as a straggler."""

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pipelines.report.charts import Mark
from pipelines.report.run_data import Attempt, Material
from pipelines.report.style import GREY, ORANGE, PURPLE, RED

TELLING = ("stragglers", "standstill", "machines.left_out")
"""The tags in which a training says what happened."""
SILENT_SECONDS, SILENT_FACTOR = 30.0, 20.0
"""A silence is a time between two points of the curve that is longer than both this, and so many times the usual one."""


@dataclass(frozen=True)
class Event:
    what: str
    step: int | None
    """None if it is not known."""
    colour: str = GREY
    seconds: float | None = None
    """Since 1970."""


def events(material: Material) -> list[Event]:
    """In the order of time, and of steps; those without either come last."""
    found = [*_attempts(material), *_silences(material), *_tagged(material)]
    return sorted(found, key=lambda one: (one.seconds is None, one.seconds or 0.0, one.step or 0))


def marks(found: list[Event]) -> list[Mark]:
    """Lines in the curves; the beginning is none."""
    return [Mark(event.step, event.what, event.colour) for event in found if event.step]


def _attempts(material: Material) -> list[Event]:
    if not material.attempts:
        return []
    first = material.attempts[0]
    begun = Event(f"training began with {_workers(first.workers)}", first.step, seconds=first.seconds)
    return [begun, *(_again(material, before, now) for before, now in pairwise(material.attempts))]


def _again(material: Material, before: Attempt, now: Attempt) -> Event:
    points = [point for point in material.run.curves.get("train/loss", ()) if point.seconds < now.seconds]
    last = max(points, key=lambda point: point.seconds, default=None)
    lost = f", {last.step - now.step:,} steps back" if last and last.step > now.step else ""
    silent = f", {now.seconds - last.seconds:,.0f} s after the last point" if last else ""
    size = "" if now.workers == before.workers else f", resized from {before.workers} to {_workers(now.workers)}"
    what = f"restarted at step {now.step:,}{size}{lost}{silent}"
    return Event(what, now.step, PURPLE if size else RED, now.seconds)


def _silences(material: Material) -> list[Event]:
    points = sorted(material.run.curves.get("train/loss", ()), key=lambda point: point.seconds)
    gaps = [(after.seconds - before.seconds, before, after) for before, after in pairwise(points)]
    if not gaps:
        return []
    limit = max(SILENT_SECONDS, SILENT_FACTOR * median(gap for gap, _, _ in gaps))
    restarts = [attempt.seconds for attempt in material.attempts]
    return [
        Event(f"no point for {gap:,.0f} s after step {before.step:,}", before.step, ORANGE, before.seconds)
        for gap, before, after in gaps
        if gap > limit and not any(before.seconds < restart <= after.seconds for restart in restarts)
    ]


def _tagged(material: Material) -> list[Event]:
    found = []
    for name in TELLING:
        if value := material.run.tags.get(name):
            step = re.search(r"\bstep ([\d,]+)", value)
            number = int(step[1].replace(",", "")) if step and step[1].strip(",") else None
            found.append(Event(f"{name}: {value}", number, ORANGE))
    return found


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count > 1 else ''}"
