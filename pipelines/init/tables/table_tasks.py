"""Tasks that the columns of a table ask for, whatever a trial of models would find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config.slices import slice_modules
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.init.tables.roles import Roles
from pipelines.init.tables.target import TargetChoice


@dataclass(frozen=True)
class TableTask:
    """A task, its training and its features."""

    columns: Sequence[ColumnFacts]
    left_out_reason: str
    """Why other columns are no features."""
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    reason: str
    """Of the section `train`."""


def table_task(roles: Roles, target: TargetChoice) -> TableTask | None:
    """The first task that a function in `TABLE_TASKS` of a slice's module `draft` recognizes."""
    recognizers = (recognize for module in slice_modules("draft").values() for recognize in getattr(module, "TABLE_TASKS", ()))
    return next((task for recognize in recognizers if (task := recognize(roles, target))), None)
