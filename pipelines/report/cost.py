"""What a run cost: hours of workers, and the energy of GPUs and processors where it was measured."""

import re
import time
from itertools import pairwise

from pipelines.report.run_data import Material

POWER = re.compile(r"system/.*?([^/]+)_power_usage_watts$")
MOST_GAP_SECONDS = 120.0
"""The longest time between two measurements of power that are joined: in a longer one the node may have done something else."""


def end_of(material: Material) -> float:
    """When the run ended, or was last heard of; seconds since 1970."""
    if material.run.is_alive:
        return time.time()
    last = max((point.seconds for points in material.run.curves.values() for point in points), default=material.run.started)
    return max(material.run.ended or last, material.run.started)


def worker_hours(material: Material) -> float | None:
    """Hours that workers trained, from each group's first step to its end; None if that was not recorded.

    A group that died has no end: there it is its last point or, of the last group, the end of the run.
    """
    if not material.attempts:
        return None
    times = sorted(point.seconds for point in material.run.curves.get("train/loss", ()))
    total = 0.0
    for number, attempt in enumerate(material.attempts):
        until = material.attempts[number + 1].seconds if number + 1 < len(material.attempts) else None
        if attempt.ended is not None:
            total += attempt.workers * max(0.0, attempt.ended - attempt.seconds)
            continue
        own = [seconds for seconds in times if seconds >= attempt.seconds and (until is None or seconds < until)]
        last = end_of(material) if until is None else max(own, default=attempt.seconds)
        total += attempt.workers * max(0.0, last - attempt.seconds)
    return total / 3_600


def kilowatt_hours(material: Material) -> dict[str, float]:
    """Energy by kind of device, such as gpu and processor, over all nodes; empty if no power was measured."""
    found: dict[str, float] = {}
    for name, points in material.run.curves.items():
        if (named := POWER.match(name)) is None:
            continue
        kind = re.sub(r"_?\d+$", "", named[1])
        in_time = sorted((point.seconds, point.value) for point in points)
        joules = sum(
            (after - before) * (power_before + power_after) / 2
            for (before, power_before), (after, power_after) in pairwise(in_time)
            if after - before <= MOST_GAP_SECONDS
        )
        found[kind] = found.get(kind, 0.0) + joules / 3.6e6
    return found
