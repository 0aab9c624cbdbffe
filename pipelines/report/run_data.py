"""Data of a run's page: the run in MLflow with its files, and, where its directory can be read, what is newer there; and what follows from
them: its events (restarts, resizes, silences, those in tags) and its costs (hours of workers, energy)."""

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow.fs import FileSelector

from pipelines.config.messages.words import show_count
from pipelines.data.versions import storage
from pipelines.data.versions.storage import unseal_or_none
from pipelines.data.versions.versions import open_named_version
from pipelines.errors import LockstepError, TrackingError
from pipelines.report.charts import GREY, ORANGE, PURPLE, RED
from pipelines.report.evaluation import FOLDER, SplitEvaluation, add_raw_rows, read_splits, unpack
from pipelines.tracking.history import History, download, history
from pipelines.tracking.job_runs import BASELINE
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import FOLDER as RUN_FOLDER

log = logging.getLogger(__name__)

ATTEMPTS = "attempts.json"
INIT_FROM = "init_from.json"
"""Which of the weights that a training started from it has loaded, as `Fit.to_values` has them."""
_FILES = ("config.json", "manifest.json", FOLDER, "samples", ATTEMPTS, INIT_FROM)
_MOST_SAMPLES = 6
"""Texts that the model wrote, on a page."""
POWER = re.compile(r"system/.*?([^/]+)_power_usage_watts$")
MOST_GAP_SECONDS = 120.0
"""The longest time between two measurements of power that are joined: in a longer one the node may have done something else."""
EVENT_TAGS = ("deaths", "stragglers", "standstill", "machines.left_out")
"""The tags in which a training says what happened, an event a line."""
SILENT_SECONDS, SILENT_FACTOR = 30.0, 20.0
"""A silence is a time between two points of the curve that is longer than both this, and so many times the usual one."""


@dataclass(frozen=True)
class TrainingAttempt:
    """A group of workers that began to train."""

    seconds: float
    """Since 1970."""
    step: int
    """The first one that it trained, counted from 0."""
    workers: int
    ended: float | None = None
    """When it had saved and ended, seconds since 1970; None if it died, or still trains."""
    steps: int | None = None
    """Steps of the run that were trained when it ended."""
    slower: Sequence[str] = ()
    """What the first worker computed in a slower way than it could, and why."""


@dataclass(frozen=True)
class RunData:
    """A run, with what it left."""

    run: History
    config: Mapping[str, Any]
    """Empty if the run has none that can be read, as all that follows."""
    manifest: Mapping[str, Any]
    attempts: Sequence[TrainingAttempt]
    splits: Sequence[SplitEvaluation]
    parent: History | None
    """The run whose weights it began with, if MLflow still has it."""
    samples: Mapping[str, str]
    """Texts that the model wrote, by file: the first ones, and the last."""
    init_from: Mapping[str, Any] = field(default_factory=dict)
    """Which of the initial weights fit; empty for all those of a run, or for random ones."""

    @property
    def is_baseline(self) -> bool:
        return self.run.tags.get(KIND) == BASELINE

    @property
    def steps(self) -> int:
        """Steps that were trained: up to the last point of the curves or, where a group of workers ended in between, up to there."""
        points = [point.step for point in self.run.curves.get("train/loss", ())]
        return max([0, *points, *(attempt.steps or attempt.step for attempt in self.attempts)])


def read_run_data(uri: str, run_id: str) -> RunData:
    """Gather what a run left. Raises TrackingError if there is no such run, or if MLflow cannot be reached."""
    run = history(uri, run_id)
    with TemporaryDirectory() as name:
        folder = Path(name)
        download(uri, run_id, folder, _FILES)
        if run.status != "FINISHED" and (directory := run.tags.get(RUN_FOLDER)):
            collect(directory, folder)
        config, manifest = (_values(folder / name) for name in ("config.json", "manifest.json"))
        try:
            add_raw_rows(folder / FOLDER, open_named_version(config["dataset"]["path"], manifest["version"]))
        except (KeyError, OSError, LockstepError) as error:
            log.info("the dataset of the run cannot be read: %s", error)
        samples = sorted((folder / "samples").glob("*.txt"))
        if len(samples) > _MOST_SAMPLES:
            samples = [*samples[: _MOST_SAMPLES // 2], *samples[-_MOST_SAMPLES // 2 :]]
        return RunData(
            run,
            config=config,
            manifest=manifest,
            attempts=[TrainingAttempt(**attempt) for attempt in _values(folder / ATTEMPTS).get("attempts", [])],
            splits=read_splits(folder / FOLDER),
            parent=_parent(uri, config),
            samples={file.stem: file.read_text(encoding="utf-8", errors="replace") for file in samples},
            init_from=_values(folder / INIT_FROM),
        )


def collect(directory: str, folder: Path) -> None:
    """Copy what workers left in the directory of a run into a folder, as MLflow has it.

    A directory that cannot be read, on another machine or removed, has nothing.
    """
    try:
        filesystem, path = storage.locate(directory)
        contents = {}
        for entry in filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
            if entry.base_name == ATTEMPTS or (entry.base_name.startswith(f"{FOLDER}-") and entry.extension == "zip"):
                contents[entry.base_name] = storage.read(filesystem, entry.path) or b""
    except (OSError, LockstepError) as error:
        log.warning("%s cannot be read, so the page has only what MLflow has: %s", directory, error)
        return
    if values := unseal_or_none(contents.pop(ATTEMPTS, b"")):
        (folder / ATTEMPTS).write_text(json.dumps({"attempts": values.get("attempts", [])}), encoding="utf-8")
    for name, content in contents.items():
        try:
            unpack(content, folder / FOLDER / name.removeprefix(f"{FOLDER}-").removesuffix(".zip"))
        except OSError as error:
            log.warning("%s/%s is left out of the page: %s", directory, name, error)


def _parent(uri: str, config: Mapping[str, Any]) -> History | None:
    origin = config.get("train", {}).get("init_from")
    origin = origin.get("run") if isinstance(origin, Mapping) else origin
    try:
        return history(uri, origin) if origin else None
    except TrackingError:  # it was deleted since
        return None


def _values(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, TypeError, ValueError, RecursionError):
        return {}


def end_seconds(data: RunData) -> float:
    """Seconds since 1970 at which the run ended, or was last heard of."""
    if data.run.is_alive:
        return time.time()
    last = max((point.seconds for points in data.run.curves.values() for point in points), default=data.run.started)
    return max(data.run.ended or last, data.run.started)


def worker_hours(data: RunData) -> float | None:
    """Hours that workers trained, from each group's first step to its end; None if that was not recorded.

    A group that died has no end: there it is its last point or, of the last group, the end of the run.
    """
    if not data.attempts:
        return None
    times = sorted(point.seconds for point in data.run.curves.get("train/loss", ()))
    total = 0.0
    for number, attempt in enumerate(data.attempts):
        until = data.attempts[number + 1].seconds if number + 1 < len(data.attempts) else None
        if attempt.ended is not None:
            total += attempt.workers * max(0.0, attempt.ended - attempt.seconds)
            continue
        attempt_times = [seconds for seconds in times if seconds >= attempt.seconds and (until is None or seconds < until)]
        last = end_seconds(data) if until is None else max(attempt_times, default=attempt.seconds)
        total += attempt.workers * max(0.0, last - attempt.seconds)
    return total / 3_600


def kilowatt_hours(data: RunData) -> dict[str, float]:
    """Energy by kind of device, such as gpu and processor, over all nodes; empty if no power was measured."""
    energy: dict[str, float] = {}
    for name, points in data.run.curves.items():
        if (match := POWER.match(name)) is None:
            continue
        kind = re.sub(r"_?\d+$", "", match[1])
        in_time = sorted((point.seconds, point.value) for point in points)
        joules = sum(
            (after - before) * (power_before + power_after) / 2
            for (before, power_before), (after, power_after) in pairwise(in_time)
            if after - before <= MOST_GAP_SECONDS
        )
        energy[kind] = energy.get(kind, 0.0) + joules / 3.6e6
    return energy


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
    events = [*_attempts(data), *_slower_ways(data), *_silences(data), *_tag_events(data)]
    return sorted(events, key=lambda event: (event.seconds is None, event.seconds or 0.0, event.step or 0))


def _attempts(data: RunData) -> Iterator[Event]:
    """The beginning, and each restart."""
    if data.attempts:
        first = data.attempts[0]
        yield Event(f"training began with {show_count(first.workers, 'worker')}", first.step, seconds=first.seconds)
    for before, now in pairwise(data.attempts):
        points = [point for point in data.run.curves.get("train/loss", ()) if point.seconds < now.seconds]
        last = max(points, key=lambda point: point.seconds, default=None)
        lost = f", {last.step - now.step:,} steps back" if last and last.step > now.step else ""
        silent = f", {now.seconds - last.seconds:,.0f} s after the last point" if last else ""
        size = "" if now.workers == before.workers else f", resized from {before.workers} to {show_count(now.workers, 'worker')}"
        text = f"restarted at step {now.step:,}{size}{lost}{silent}"
        yield Event(text, now.step, PURPLE if size else RED, now.seconds)


def _slower_ways(data: RunData) -> Iterator[Event]:
    for attempt in data.attempts:
        yield from (Event(reason, attempt.step, ORANGE, attempt.seconds) for reason in attempt.slower)


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


def _tag_events(data: RunData) -> Iterator[Event]:
    for name in EVENT_TAGS:
        for value in data.run.tags.get(name, "").splitlines():
            step = re.search(r"\bstep ([\d,]+)", value)
            number = int(step[1].replace(",", "")) if step and step[1].strip(",") else None
            yield Event(f"{name}: {value}", number, ORANGE)
