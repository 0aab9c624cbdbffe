"""Cuts a relation into parts, each read by a task: ranges of pages of a table, ranges of a key, or all of it.

Each part is a condition of SQL. Every row is in exactly one of them, whatever is written meanwhile: the first and the last have no end.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

LEAST_BYTES = 2**20
"""Of a part, if there are several."""


def part_count(tasks: int, cores: int, table_bytes: int) -> int:
    """Parts of a relation of so many bytes. `tasks` is the setting, and 0 leaves it to the number of cores."""
    return max(1, min(tasks or min(2 * cores, 32), table_bytes // LEAST_BYTES))


def page_cuts(pages: Sequence[int], parts: int) -> list[int]:
    """The pages at which all parts but the first begin. `pages` are the numbers of pages of a table's partitions: a range of pages is read
    from each of them that has it, and all ranges have about the same number of pages in all."""
    ends = np.sort(np.array([0, *pages], np.int64))
    partitions_beyond = np.arange(len(ends) - 1, -1, -1)
    pages_before = np.concatenate([[0], np.cumsum(np.diff(ends) * partitions_beyond[:-1])])
    targets = pages_before[-1] * np.arange(1, parts) // parts
    return sorted(set(np.interp(targets, pages_before, ends).astype(int).tolist()) - {0})


def page_conditions(cuts: Sequence[int]) -> list[str]:
    """Conditions on the place of a row in its table, of which PostgreSQL 14 and later read only those pages."""
    return _conditions([f"'({cut},0)'::tid" for cut in cuts], "ctid", "")


def key_cuts(least: int, greatest: int, parts: int) -> list[int]:
    """The keys at which all parts but the first begin."""
    return sorted({least + (greatest - least + 1) * number // parts for number in range(1, parts)} - {least})


def key_conditions(column: str, cuts: Sequence[int]) -> list[str]:
    """Rows whose key is NULL are in the first part."""
    return _conditions([str(cut) for cut in cuts], column, f" OR {column} IS NULL")


def _conditions(cuts: Sequence[str], column: str, also_first: str) -> list[str]:
    if not cuts:
        return ["true"]
    between = [f"{column} >= {start} AND {column} < {end}" for start, end in pairwise(cuts)]
    return [f"{column} < {cuts[0]}{also_first}", *between, f"{column} >= {cuts[-1]}"]
