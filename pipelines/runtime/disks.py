"""Rules about disks: what is free, and what a write that found no space says. `machine` has more rules."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

LEAST_DISK_BYTES = 2**30
SPARK_DISK_REMEDY = "point SPARK_LOCAL_DIRS to a larger one, on a cluster that of its workers"


@dataclass(frozen=True)
class Reading:
    """The present state, and the fault if a rule is broken."""

    text: str
    fault: str = ""
    """The value, the rule and the remedy; empty if all is right."""


def disk(folder: str | Path, purpose: str, remedy: str) -> Reading:
    """The free space for a folder, which need not exist yet. `purpose` is such as `Spark shuffles`."""
    path = Path(folder).absolute()
    place = next(parent for parent in (path, *path.parents) if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return Reading(str(place), f"{place}, where {purpose}, is no folder that this user can write to; {remedy}")
    free = shutil.disk_usage(place).free
    text = f"{size_text(free)} free on {folder}"
    return Reading(text, "" if free >= LEAST_DISK_BYTES else f"{text}, where {purpose}: less than {size_text(LEAST_DISK_BYTES)}; {remedy}")


def full_disk(folder: str | Path, purpose: str, remedy: str) -> str:
    """The message for a write that found no space."""
    return f"no space left on {folder}, where {purpose}; {remedy}"


def size_text(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
