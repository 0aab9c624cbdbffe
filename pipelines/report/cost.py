"""Costs of a run: hours of workers, and the energy of GPUs and processors where it was measured."""

import re
import time
from itertools import pairwise

from pipelines.report.run_data import RunData

POWER = re.compile(r"system/.*?([^/]+)_power_usage_watts$")
MOST_GAP_SECONDS = 120.0
"""The longest time between two measurements of power that are joined: in a longer one the node may have done something else."""


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
