"""Columns that are no features: constants, row numbers, identifiers, copies of the target, and those by which rows belong together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import pyarrow as pa

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.column_roles import (
    COPY,
    IDENTIFIER,
    ROW_NUMBER,
    has_identifier_name,
    is_copy,
    is_identifier,
    is_member,
    is_row_number,
    many_texts,
    unusable_reason,
)
from pipelines.init.tables.groups import find_group, repeat_share
from pipelines.init.tables.series import RowOrder, find_panel
from pipelines.init.tables.table import SampledTable
from pipelines.init.tables.target import TargetChoice

LEAST_REPEATED = 0.05
"""Share of rows that are there already, but for their identifier, from which that is no key. Rounded numbers repeat by chance, too."""


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
            if column.is_unique and (table.is_complete or has_identifier_name(column)):
                identifiers.append(column)
            roles.left_out[column.name] = IDENTIFIER if column.is_unique else many_texts(column.distinct, len(column.filled))
        else:
            roles.features.append(column)
    _choose_key(roles, table, row_numbers, identifiers)
    roles.panel = find_panel(roles.features) if table.is_complete and not table.splits else None
    if roles.panel:
        _describe_panel(roles, roles.panel)
    else:
        _choose_group(roles, table, target)
    return roles


def _choose_key(roles: Roles, table: SampledTable, row_numbers: Sequence[ColumnFacts], identifiers: Sequence[ColumnFacts]) -> None:
    """Choose what decides which rows are equal, and so go to one split: an identifier, or else all that the rows say.

    An identifier of rows that are repeated is none of what they describe. Where there are fewer different rows than rows even without
    chance, equal ones are no copies, and any number tells them apart."""
    names = {column.name for column in (*row_numbers, *identifiers)}
    described = [column for column in table.columns if column.name not in names]
    has_few_combinations = prod(_values(column) for column in described) < table.rows
    repeated = repeat_share(described) if names and not has_few_combinations else 0.0
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


def _values(column: ColumnFacts) -> float:
    """How many values the column can have, by those that it has; NULL is one."""
    return float("inf") if column.kind in ("list", "other") else max(column.distinct, 1) + bool(column.nulls)


def _describe_panel(roles: Roles, panel: RowOrder) -> None:
    """Say that the names of series are categories, and what would make a group of them."""
    roles.members = [*panel.by, *(column for column in roles.features if is_member(column) and column not in panel.by)]
    names = " and ".join(column.name for column in panel.by)
    roles.doubts.append(
        f"the rows are a panel, with each {names} at most values of {panel.time.name}: later rows of the same {names} are predicted from "
        "earlier ones. To predict series that training has not seen, "
        f"split by dataset.split.group, {panel.by[0].name}, without source.windows"
    )


def _choose_group(roles: Roles, table: SampledTable, target: TargetChoice) -> None:
    """Choose the identifier whose equal values go to one split: the only one by its name, or one whose rows resemble each other."""
    roles.members = [column for column in roles.features if is_member(column)]
    evidence = ""
    is_open = not (roles.members or table.splits)  # else names or the files decide
    if is_open and (resembling := find_group([*roles.features, *target.columns], roles.features)):
        roles.members, evidence = [resembling.column], resembling.text
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
