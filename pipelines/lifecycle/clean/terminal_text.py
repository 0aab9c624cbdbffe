"""The text that a cleaning prints: a line for each item, and a last one."""

from collections import Counter

from pipelines.config.messages.words import show_count
from pipelines.lifecycle.clean.cleaning import Cleaning, CleaningItem

_UNITS = ("B", "kB", "MB", "GB", "TB")
_NOUNS = {
    "version": "version",
    "attempts": "folder of dead attempts",
    "leftovers": "folder of leftovers",
    "checkpoints": "checkpoint folder",
}


def describe_item(item: CleaningItem, is_dry_run: bool) -> str:
    """One line: what becomes of it, what it is, its size if it goes, and why."""
    outcome = "stays" if not item.goes else "would go" if is_dry_run else "removed"
    size = show_bytes(item.bytes) if item.goes else ""
    return f"{outcome:9} {item.kind:11} {item.name:12} {size:>9}  {item.reason}"


def describe_cleaning(cleaning: Cleaning) -> str:
    """The last line: how many items go, and what that frees."""
    counts = Counter(item.kind for item in cleaning.items if item.goes)
    versions = sum(item.kind == "version" and not item.goes for item in cleaning.items)
    going = ", ".join(_plural(count, _NOUNS[kind]) for kind, count in counts.items())
    if not going:
        return f"nothing to remove; {show_count(versions, 'version')} stay"
    if cleaning.is_dry_run:
        return f"would remove {going}, {show_bytes(cleaning.bytes)} (--yes does it)"
    return f"removed {going}, {show_bytes(cleaning.bytes)}"


def _plural(count: int, noun: str) -> str:
    head, of, tail = noun.partition(" of ")
    return f"{show_count(count, head)}{of}{tail}"


def show_bytes(size: int) -> str:
    """A size in decimal units, `1.2 GB`."""
    number = float(size)
    for unit in _UNITS[:-1]:
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1_000
    return f"{number:.1f} {_UNITS[-1]}"
