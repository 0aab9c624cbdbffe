"""Columns that are no features: constants, row numbers, identifiers, copies of the target, and those by which rows belong together: equal
ones, and those of one value that resemble each other more than chance.

1. `find_roles` sorts the columns, and chooses the key and the group. Which rows are there already, a hash of their values tells.
2. `find_group` looks for the identifiers of persons, machines or places, of which each has several rows. For each column that could be
   one, `_median_resemblance` computes the intra-class correlation of every other column (Fisher 1925): how alike two rows of one value are,
   1 for equal and 0 for any two. A measured number, such as an age, has neighbours that are alike too; what counts is by how much rows of
   one value are more alike than rows of neighbouring values. An identifier is one whose rows are so in most other columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import pyarrow as pa

from pipelines.data.features.auto.column_facts import (
    COPY,
    IDENTIFIER,
    ROW_NUMBER,
    ColumnFacts,
    has_identifier_name,
    has_sentences,
    is_copy,
    is_identifier,
    is_member,
    is_row_number,
    many_texts,
    unusable_reason,
)
from pipelines.init.tables.date_formats import look_like_moments
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.time_series import RowOrder, find_panel

LEAST_REPEATED = 0.05
"""Share of rows that are there already, but for their identifier, from which that is no key. Rounded numbers repeat by chance, too."""
LEAST_GROUPS = 20
LEAST_RESEMBLANCE = 0.3
"""Excess of the intra-class correlation, of the median column, from which rows of one value are those of a group."""
MOST_ROWS, MOST_COLUMNS = 5_000, 50
"""Rows and other columns that are compared for a candidate."""
MOST_CANDIDATES = 50
"""Candidates that are examined: the first columns, among which identifiers stand."""
SHUFFLES = 19
"""Shuffles of the rows, whose correlations are all below that of a group: of as many by chance, one in twenty is."""
_LEAST_IN_SEVERAL = 0.5
"""Share of the rows whose value another row has, too."""
_DESIGN = 3.0
"""Standard errors below chance from which a column varies inside of each group by design, such as the year of a panel."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MISSING = np.uint64(2**64 - 1)
"""The code of a text that is NULL."""


@dataclass
class Roles:
    """Roles of the columns besides the target."""

    features: list[ColumnFacts] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons by column."""
    key: str = ""
    dropped: list[str] = field(default_factory=list)
    """Columns that not even the query has, since without a key all of its columns decide which rows are equal."""
    group: str = ""
    members: list[ColumnFacts] = field(default_factory=list)
    """Identifiers that repeat."""
    panel: RowOrder | None = None
    """The series of a panel, whose names are no group: later rows of the same series are predicted."""
    doubts: list[str] = field(default_factory=list)


def find_roles(table: SampledTable, target: TargetChoice) -> Roles:
    """Sort the columns besides the target."""
    roles, row_numbers, identifiers = Roles(), list[ColumnFacts](), list[ColumnFacts]()
    for column in table.columns:
        if target.holds(column):
            continue
        if reason := _uselessness(column, target):
            roles.left_out[column.name] = reason
        elif is_row_number(column, table.rows):
            row_numbers.append(column)
            roles.left_out[column.name] = ROW_NUMBER
        elif is_identifier(column):
            is_time = column.kind == "text" and look_like_moments(column.filled)  # which a random split would mix
            if column.is_unique and (table.is_complete or has_identifier_name(column)) and not is_time:
                identifiers.append(column)
            roles.left_out[column.name] = IDENTIFIER if column.is_unique else many_texts(column.distinct, len(column.filled))
        else:
            roles.features.append(column)
    _choose_key(roles, table, row_numbers, identifiers)
    roles.panel = find_panel(roles.features) if table.is_complete and not table.splits else None
    if not roles.panel:
        _choose_group(roles, table, target)
        return roles
    by = roles.panel.by
    roles.members = [*by, *(column for column in roles.features if is_member(column) and column not in by)]
    names = " and ".join(column.name for column in by)
    roles.doubts.append(
        f"the rows are a panel, with each {names} at most values of {roles.panel.time.name}: later rows of the same {names} are predicted "
        "from earlier ones. To predict series that training has not seen, "
        f"split by dataset.split.group, {by[0].name}, without source.windows"
    )
    return roles


def _choose_key(roles: Roles, table: SampledTable, row_numbers: Sequence[ColumnFacts], identifiers: Sequence[ColumnFacts]) -> None:
    """Choose what decides which rows are equal, and so go to one split: an identifier, or else all that the rows say.

    An identifier of rows that are repeated is none of what they describe. Where there are fewer different rows than rows even without
    chance, equal ones are no copies, and any number tells them apart."""
    names = {column.name for column in (*row_numbers, *identifiers)}
    described = [column for column in table.columns if column.name not in names]
    has_lists = any(column.kind in ("list", "other") for column in described)
    has_few_combinations = not has_lists and prod(max(column.distinct, 1) + bool(column.nulls) for column in described) < table.rows
    repeated = 0.0
    if names and not has_few_combinations:
        hashes = np.sort(_row_hashes(map(_codes, described)))
        repeated = float((hashes[1:] == hashes[:-1]).sum()) / max(len(hashes), 1)
    if repeated >= LEAST_REPEATED:
        roles.dropped = sorted(names)
        besides = f"{', '.join(roles.dropped)}, which the query leaves out: equal rows go to one split"
        roles.doubts.append(f"{100 * repeated:.0f} % of the rows repeat an earlier one but for {besides}")
        return
    keys = [] if table.splits else [*identifiers, *(row_numbers if has_few_combinations else [])]
    roles.key = keys[0].name if keys else ""
    roles.dropped = [column.name for column in row_numbers if column.name != roles.key]
    if roles.key:
        roles.doubts.append(f"{roles.key} identifies a row: dataset.key; of rows with the same one, ETL keeps one")


def _choose_group(roles: Roles, table: SampledTable, target: TargetChoice) -> None:
    """Choose the identifier whose equal values go to one split: the only one by its name, or one whose rows resemble each other."""
    roles.members = [column for column in roles.features if is_member(column)]
    evidence = ""
    is_open = not (roles.members or table.splits)  # else names or the files decide
    if is_open and (resembling := find_group([*roles.features, *target.columns], roles.features)):
        roles.members = [resembling.column]
        evidence = (
            f"rows with equal {resembling.column.name} resemble each other: the intra-class correlation of the median column is "
            f"{resembling.same:.2f}, and {max(resembling.by_chance, 0):.2f} at most by chance"
        )
    if len(roles.members) == 1:
        (group,) = roles.members
        roles.group = group.name
        roles.features.remove(group)
        roles.left_out[group.name] = f"{group.distinct:,} identifiers that repeat: equal ones are in one split, dataset.split.group"
        because = f"{evidence}, so they" if evidence else f"{group.name} repeats, so rows with an equal one"
        roles.doubts.append(f"{because} go to one split; for a random split, remove dataset.split.group")


def _uselessness(column: ColumnFacts, target: TargetChoice) -> str:
    """Why no model learns from the column; empty if one may."""
    if reason := unusable_reason(column):
        return reason
    if not len(column.filled):
        return "empty"
    if column.kind != "list" and column.distinct < 2 and column.nulls == 0:
        return f"constant, always {str(column.filled[0].as_py())[:40]}"
    return COPY if any(is_copy(column, part, not target.has_classes) for part in target.columns) else ""


def depends_on(column: ColumnFacts, key: ColumnFacts) -> bool:
    """Whether each value of the key has one value of the column."""
    table = pa.table([key.typed.values, column.typed.values], names=["key", "value"])
    return len(table.group_by(["key", "value"]).aggregate([])) <= 1.001 * key.distinct


@dataclass(frozen=True)
class GroupEvidence:
    """How alike the rows of one value of a column are."""

    column: ColumnFacts
    same: float
    """Intra-class correlation of the median other column."""
    excess: float
    """That above the correlation of rows of neighbouring values."""
    by_chance: float
    """The largest excess of shuffled rows."""


def find_group(columns: Sequence[ColumnFacts], candidates: Sequence[ColumnFacts]) -> GroupEvidence | None:
    """The candidate whose rows resemble each other most, one with the name of an identifier before any other; None if those of none do.
    `columns` are those that say something of a row, the target among them. Of equal rows, one is looked at."""
    codes_or_names = [column for column in candidates if column.kind == "text" or column.is_whole]
    possible = [  # many values of few rows each
        column
        for column in codes_or_names
        if max(LEAST_GROUPS, len(column.filled) ** 0.5) <= column.distinct < len(column.filled) and not has_sentences(column)
    ][:MOST_CANDIDATES]
    if not possible:
        return None
    codes = {column.name: _codes(column) for column in columns}
    rows = np.sort(np.unique(_row_hashes(codes.values()), return_index=True)[1])
    comparable = [column for column in columns if column.kind not in ("list", "other")]
    comparable = comparable[:: -(-len(comparable) // MOST_COLUMNS)]
    ranks_of_all = _rank_matrix(comparable, codes, rows) if len(rows) <= MOST_ROWS else None
    evidence = list[GroupEvidence]()
    for candidate in possible:
        # Of many rows, about MOST_ROWS: all rows of some values, whatever their order.
        is_chosen = (_mix(codes[candidate.name][rows]) >> np.uint64(11)) <= np.uint64(min(1.0, MOST_ROWS / max(len(rows), 1)) * 2**53)
        chosen = rows[is_chosen]
        ranks = _rank_matrix(comparable, codes, chosen) if ranks_of_all is None else ranks_of_all
        is_other = [column is not candidate for column in comparable]
        groups = np.unique(codes[candidate.name][chosen], return_inverse=True)[1]
        if group := _examine(candidate, ranks[:, is_other], groups):
            evidence.append(group)
    return max(evidence, key=lambda group: (has_identifier_name(group.column), group.excess), default=None)


def _examine(candidate: ColumnFacts, ranks: np.ndarray, groups: np.ndarray) -> GroupEvidence | None:
    """The evidence that the candidate, whose values are the `groups`, is a group; None if it is none."""
    counts = np.bincount(groups)
    if not ranks.shape[1] or counts[counts > 1].sum() < _LEAST_IN_SEVERAL * len(groups):
        return None
    has_neighbours = candidate.kind == "number"
    same, excess = _median_resemblance(ranks, groups, has_neighbours)
    if excess < LEAST_RESEMBLANCE:
        return None
    random = np.random.default_rng(0)
    by_chance = max(_median_resemblance(ranks, random.permutation(groups), has_neighbours)[1] for _ in range(SHUFFLES))
    return GroupEvidence(candidate, same, excess, by_chance) if by_chance < excess else None


def _median_resemblance(ranks: np.ndarray, groups: np.ndarray, has_neighbours: bool) -> tuple[float, float]:
    """The median over the columns of the correlation of rows of one group, and of its excess over that of neighbouring groups: of the mean
    product of two rows over the mean square. `ranks` are of mean 0, shape (rows, columns); `groups` count from 0."""
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups)
    starts = np.cumsum(counts) - counts
    sums, squares = np.add.reduceat(ranks[order], starts), np.add.reduceat(ranks[order] ** 2, starts)
    sizes, is_several = counts[:, None], counts > 1
    products = ((sums**2 - squares)[is_several] / (sizes[is_several] - 1)).sum(0)
    same = products / np.maximum(squares[is_several].sum(0), 1e-12)
    means, weights = sums / sizes, np.minimum(sizes[:-1], sizes[1:])
    neighbour_squares = ((squares / sizes)[:-1] * weights).sum(0)
    neighbours = (means[:-1] * means[1:] * weights).sum(0) / np.maximum(neighbour_squares, 1e-12)
    is_design = same < -_DESIGN / np.sqrt((counts * (counts - 1)).sum() / 2)
    if is_design.all() or len(is_design) < 2:  # of one column alone, a feature that tells the target may look so
        return 0.0, 0.0
    excess = same - neighbours.clip(0) if has_neighbours else same
    # The largest value that at least half of the columns reach.
    same_median, excess_median = (float(np.quantile(values[~is_design], 0.5, method="lower")) for values in (same, excess))
    return same_median, excess_median


def _rank_matrix(columns: Sequence[ColumnFacts], codes: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Ranks of shape (rows, columns), of mean 0 and deviation 1, and 0 for NULL; those of categories are in an order that says nothing."""
    ranks_by_column = []
    for column in columns:
        codes_of_rows = codes[column.name][rows]
        is_text = column.kind == "text"
        values = _mix(codes_of_rows).astype(np.float64) if is_text else column.places[rows]
        is_filled = codes_of_rows != _MISSING if is_text else np.isfinite(values)
        ranks = np.zeros(len(rows))
        if is_filled.any():
            _, places, counts = np.unique(values[is_filled], return_inverse=True, return_counts=True)
            ranks[is_filled] = (np.cumsum(counts) - counts / 2)[places]
            ranks[is_filled] -= ranks[is_filled].mean()
        ranks_by_column.append(ranks / (ranks.std() or 1.0))
    return np.stack(ranks_by_column, axis=1)


def _row_hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """uint64, equal for rows whose codes are equal in all of these columns."""
    first, *further = columns
    hashes = _mix(first)
    for codes in further:
        hashes = _mix(hashes * _ODD + codes)
    return hashes


def _codes(column: ColumnFacts) -> np.ndarray:
    """uint64, equal for equal values, and in their order for whole numbers of one sign. Lists are taken for different."""
    if column.kind in ("number", "boolean", "moment"):
        values = column.places + 0.0  # so that −0 is 0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if column.kind == "text":
        return column.codes.view(np.uint64)
    return np.arange(column.rows, dtype=np.uint64)


def _mix(hashes: np.ndarray) -> np.ndarray:
    """Spread bits: the finalizer of MurmurHash3."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))
