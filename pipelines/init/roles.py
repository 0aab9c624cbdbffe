"""Columns that are no features: constants, identifiers, copies of the target, and keys by which rows belong together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.init.columns import ColumnFacts
from pipelines.init.table import SampledTable
from pipelines.init.target import TargetChoice

_IDENTIFIER = re.compile(r"(^|_)(id|key|uuid|guid)\d*$|[a-z](Id|ID|Key|UUID)$|^(row|index|unnamed_0)$", re.IGNORECASE)
_MEMBER = re.compile(
    r"^(patient|subject|customer|client|person|user|member|household|speaker|machine|engine|device|session)(_?(id|no|nr|number))?$", re.I
)
_LEAST_GROUPS = 20
_COPY_CORRELATION = 0.9999
_IDENTIFIER_SHARE = 0.8
"""Share of the rows beyond which different texts are names of rows, and no categories."""
_TEXT_WORDS = 4


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
            if not (roles.key or table.splits) and column.is_unique and (table.is_complete or _IDENTIFIER.search(column.name)):
                roles.key = column.name
            roles.left_out[column.name] = "a different value in every row, an identifier" if column.is_unique else _many_values(column)
        else:
            roles.features.append(column)
            if _is_member(column):
                roles.members.append(column)
    if len(roles.members) == 1:
        (group,) = roles.members
        roles.group = group.name
        roles.features.remove(group)
        roles.left_out[group.name] = f"{group.distinct:,} identifiers that repeat: equal ones are in one split, dataset.split.group"
    return roles


def has_sentences(column: ColumnFacts) -> bool:
    """Whether the column has sentences, and no categories."""
    return column.kind == "text" and column.words >= _TEXT_WORDS and column.distinct > 0.2 * len(column.filled)


def is_identifier(column: ColumnFacts) -> bool:
    """Whether the column names rows."""
    if column.kind == "number":
        is_dense = column.is_unique and column.is_whole and column.numbers[-1] - column.numbers[0] == column.rows - 1
        return column.is_whole and column.is_unique and (is_dense or bool(_IDENTIFIER.search(column.name)))
    return column.kind == "text" and not has_sentences(column) and column.distinct > _IDENTIFIER_SHARE * len(column.filled)


def _is_member(column: ColumnFacts) -> bool:
    has_name = _IDENTIFIER.search(column.name) or _MEMBER.search(column.name)
    return bool(has_name) and (column.kind == "text" or column.is_whole) and _LEAST_GROUPS <= column.distinct < column.rows


def _many_values(column: ColumnFacts) -> str:
    return f"{column.distinct:,} different texts in {len(column.filled):,} rows, an identifier"


def _uselessness(column: ColumnFacts, target: TargetChoice) -> str:
    """Why no model learns from the column; empty if one may."""
    if column.kind == "other":
        return f"of type {column.typed.ddl}, which no encoder takes"
    if not len(column.filled):
        return "empty"
    if column.kind != "list" and column.distinct < 2 and column.nulls == 0:
        return f"constant, always {str(column.filled[0].as_py())[:40]}"
    if column.kind == "list" and not pa.types.is_string(column.filled.type.value_type) and not is_array(column):
        return f"lists of different lengths, of type {column.typed.ddl}"
    return "a near copy of the target" if _is_copy(column, target) else ""


def is_array(column: ColumnFacts) -> bool:
    """Whether the column has lists of numbers of one length."""
    kind = column.filled.type.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return (
        is_number
        and len(pc.unique(pc.list_value_length(column.filled))) == 1
        and not pc.any(pc.is_null(pc.list_flatten(column.filled))).as_py()
    )


def _is_copy(column: ColumnFacts, target: TargetChoice) -> bool:
    """Whether the column decides the target alone: as a number by a line, as categories one by one."""
    if target.kind == "number":
        if column.kind != "number" or column.distinct < 3:
            return False
        pairs = np.array([column.places, target.column.places])
        pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
        deviations = pairs.std(axis=1)
        return bool(pairs.shape[1] > 2 and deviations.min() > 0 and abs(np.corrcoef(pairs)[0, 1]) > _COPY_CORRELATION)
    if column.kind not in ("number", "text", "boolean") or not target.column.distinct <= column.distinct <= 2 * target.column.distinct:
        return False
    return _purity([column, target.column]) > 0.999


def _purity(columns: Sequence[ColumnFacts]) -> float:
    """The share of rows whose class is the most frequent one of their value in the first column."""
    names = ["value", "target"]
    table = pa.table([column.typed.values for column in columns], names=names).drop_null()
    pairs = table.group_by(names).aggregate([([], "count_all")])
    best = pairs.group_by("value").aggregate([("count_all", "max")])
    return pc.sum(best["count_all_max"]).as_py() / max(len(table), 1)


def depends_on(column: ColumnFacts, key: ColumnFacts) -> bool:
    """Whether each value of the key has one value of the column."""
    table = pa.table([key.typed.values, column.typed.values], names=["key", "value"])
    return len(table.group_by(["key", "value"]).aggregate([])) <= 1.001 * key.distinct
