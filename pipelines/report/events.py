"""Events of a run: restarts, resizes, silences, and those in its tags, such as a straggler."""

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pipelines.config.messages.counting import show_count
from pipelines.report.charts import Mark
from pipelines.report.run_data import RunData, TrainingAttempt
from pipelines.report.style import GREY, ORANGE, PURPLE, RED

EVENT_TAGS = ("deaths", "stragglers", "standstill", "machines.left_out")
"""The tags in which a training says what happened, an event a line."""
SILENT_SECONDS, SILENT_FACTOR = 30.0, 20.0
"""A silence is a time between two points of the curve that is longer than both this, and so many times the usual one."""


@dataclass(frozen=True)
class Event:
    text: str
    step: int | None
    """None if it is not known."""
    colour: str = GREY
    seconds: float | None = None
    """Since 1970."""


def run_events(data: RunData) -> list[Event]:
    """Events in the order of time, and of steps; those without either come last."""
    events = [*_attempts(data), *_silences(data), *_tag_events(data)]
    return sorted(events, key=lambda event: (event.seconds is None, event.seconds or 0.0, event.step or 0))


def event_marks(events: list[Event]) -> list[Mark]:
    """Lines in the curves; the beginning is none."""
    return [Mark(event.step, event.text, event.colour) for event in events if event.step]


def _attempts(data: RunData) -> list[Event]:
    if not data.attempts:
        return []
    first = data.attempts[0]
    start = Event(f"training began with {show_count(first.workers, 'worker')}", first.step, seconds=first.seconds)
    return [start, *(_restart(data, before, now) for before, now in pairwise(data.attempts))]


def _restart(data: RunData, before: TrainingAttempt, now: TrainingAttempt) -> Event:
    points = [point for point in data.run.curves.get("train/loss", ()) if point.seconds < now.seconds]
    last = max(points, key=lambda point: point.seconds, default=None)
    lost = f", {last.step - now.step:,} steps back" if last and last.step > now.step else ""
    silent = f", {now.seconds - last.seconds:,.0f} s after the last point" if last else ""
    size = "" if now.workers == before.workers else f", resized from {before.workers} to {show_count(now.workers, 'worker')}"
    text = f"restarted at step {now.step:,}{size}{lost}{silent}"
    return Event(text, now.step, PURPLE if size else RED, now.seconds)


def _silences(data: RunData) -> list[Event]:
    points = sorted(data.run.curves.get("train/loss", ()), key=lambda point: point.seconds)
    gaps = [(after.seconds - before.seconds, before, after) for before, after in pairwise(points)]
    if not gaps:
        return []
    limit = max(SILENT_SECONDS, SILENT_FACTOR * median(gap for gap, _, _ in gaps))
    restarts = [attempt.seconds for attempt in data.attempts]
    return [
        Event(f"no point for {gap:,.0f} s after step {before.step:,}", before.step, ORANGE, before.seconds)
        for gap, before, after in gaps
        if gap > limit and not any(before.seconds < restart <= after.seconds for restart in restarts)
    ]


def _tag_events(data: RunData) -> list[Event]:
    events = []
    for name in EVENT_TAGS:
        for value in data.run.tags.get(name, "").splitlines():
            step = re.search(r"\bstep ([\d,]+)", value)
            number = int(step[1].replace(",", "")) if step and step[1].strip(",") else None
            events.append(Event(f"{name}: {value}", number, ORANGE))
    return events
