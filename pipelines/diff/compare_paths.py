"""Compares what two paths name, and writes the page about it."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.data.versions.versions import Version
from pipelines.diff.comparison import VersionChanges, compare_table, compare_versions
from pipelines.diff.drift import DEFAULT_LIMITS, Limits
from pipelines.diff.page import changes_page
from pipelines.diff.sides import find_version, last_two, open_first
from pipelines.diff.table_input import query_columns, read_input
from pipelines.errors import ConfigError
from pipelines.runtime import atomic


@dataclass(frozen=True)
class Compared:
    """A difference, with the versions that it is of."""

    difference: VersionChanges
    before: Version
    now: Version | None
    """None for a table."""

    def page(self) -> str:
        """The difference as one HTML file."""
        return changes_page(self.difference, self.before, self.now)


def compare_paths(before: str, now: str = "", limits: Limits = DEFAULT_LIMITS) -> Compared:
    """Compare the version in a folder with another one, or with raw rows in files; without `now`, the last two versions of a dataset's
    folder. Raises DatasetError or SourceError if there is nothing to compare."""
    if not now:
        first, second = last_two(before)
        return Compared(compare_versions(first, second, limits=limits), first, second)
    first = open_first(before)
    version = find_version(now)
    if version is not None:
        return Compared(compare_versions(first, version, (first.root, version.root), limits), first, version)
    table, lacking = read_input(now, first.manifest)
    return Compared(compare_table(first, table, lacking, (first.root, now), limits), first, None)


def compare_with_rows(before: str, rows: pa.Table, place: str, limits: Limits = DEFAULT_LIMITS) -> Compared:
    """Compare the version in a folder with a table of raw rows."""
    version = open_first(before)
    table, lacking = query_columns(rows, version.manifest, place)
    return Compared(compare_table(version, table, lacking, (version.root, place), limits), version, None)


def write_page(compared: Compared, file: str) -> None:
    """Write the page. Raises ConfigError if the file cannot be written."""
    try:
        atomic.write_file(file, compared.page().encode(), durable=False)
    except OSError as error:
        raise ConfigError(f"--output is {file}, which cannot be written: {error.strerror}; choose another file") from error


def read_limits(values: dict[str, Any]) -> Limits:
    """Limits from values that are not None. Raises ConfigError if one is out of its range."""
    limits = Limits(**{name: value for name, value in values.items() if value is not None})
    for name, value, most in (("psi", limits.psi, float("inf")), ("missing", limits.missing, 1.0), ("chance", limits.chance, 1.0)):
        if not 0 <= value <= most:
            raise ConfigError(f"--{name} is {value:g}, and must be at least 0{'' if most > 1 else ' and at most 1'}; give another number")
    return limits
