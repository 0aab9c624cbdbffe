"""Columns that are no features: constants, identifiers, copies of the target, and keys by which rows belong together."""

from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.column_roles import (
    COPY,
    IDENTIFIER,
    has_identifier_name,
    is_copy,
    is_identifier,
    is_member,
    many_texts,
    unusable_reason,
)
from pipelines.init.tables.table import SampledTable
from pipelines.init.tables.target import TargetChoice


@dataclass
class Roles:
    """Roles of the columns besides the target."""

    features: list[ColumnFacts] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons by column."""
    key: str = ""
    group: str = ""
    members: list[ColumnFacts] = field(default_factory=list)
    """Identifiers that repeat."""


def find_roles(table: SampledTable, target: TargetChoice) -> Roles:
    """Sort the columns besides the target."""
    roles = Roles()
    for column in table.columns:
        if column is target.column:
            continue
        if reason := _uselessness(column, target):
            roles.left_out[column.name] = reason
        elif is_identifier(column):
            if not (roles.key or table.splits) and column.is_unique and (table.is_complete or has_identifier_name(column)):
                roles.key = column.name
            roles.left_out[column.name] = IDENTIFIER if column.is_unique else many_texts(column.distinct, len(column.filled))
        else:
            roles.features.append(column)
            if is_member(column):
                roles.members.append(column)
    if len(roles.members) == 1:
        (group,) = roles.members
        roles.group = group.name
        roles.features.remove(group)
        roles.left_out[group.name] = f"{group.distinct:,} identifiers that repeat: equal ones are in one split, dataset.split.group"
    return roles


def _uselessness(column: ColumnFacts, target: TargetChoice) -> str:
    """Why no model learns from the column; empty if one may."""
    if reason := unusable_reason(column):
        return reason
    if not len(column.filled):
        return "empty"
    if column.kind != "list" and column.distinct < 2 and column.nulls == 0:
        return f"constant, always {str(column.filled[0].as_py())[:40]}"
    return COPY if is_copy(column, target.column, not target.has_classes) else ""


def depends_on(column: ColumnFacts, key: ColumnFacts) -> bool:
    """Whether each value of the key has one value of the column."""
    table = pa.table([key.typed.values, column.typed.values], names=["key", "value"])
    return len(table.group_by(["key", "value"]).aggregate([])) <= 1.001 * key.distinct
