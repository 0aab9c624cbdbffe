"""The task `ensemble`: predicts what its members predict, by the average of their outputs."""

from functools import cached_property

from torch import nn

from pipelines.applications.ensembles.network import EnsembleNetwork
from pipelines.applications.ensembles.settings import EnsembleSettings as Settings
from pipelines.applications.ensembles.settings import Member
from pipelines.config import TaskSettings
from pipelines.config.plugins import import_class, is_class_path
from pipelines.config.tasks.functions import read_task
from pipelines.errors import ConfigError
from pipelines.tasks.base import Task
from pipelines.tasks.supervised import Supervised


class Ensemble(Supervised):
    settings: Settings
    takes_terms = True

    @cached_property
    def members(self) -> tuple[Supervised, ...]:
        """The tasks of the members, over the same columns. Raises ConfigError for one whose outputs are no values of this target, and
        before the runs have been read."""
        if not self.settings.members:
            raise ConfigError(
                f"task.members is empty: what the {len(self.settings.of)} runs of task.of have recorded is filled in by a training; "
                "train the ensemble first"
            )
        return tuple(self.member_task(member) for member in self.settings.members)

    def member_task(self, member: Member) -> Supervised:
        """The task of a member. Raises ConfigError if it does not predict what this task does, or if its code is none of this project."""
        kind = str(member.task.get("kind"))
        place = f"task.of has run {member.run} of kind {kind}"
        try:
            settings = None if is_class_path(kind) else read_task(member.task)
        except ValueError as error:
            raise ConfigError(f"{place}, which this installation does not know: {error}; remove the run from task.of") from error
        if settings is None or not settings.implementation.startswith("pipelines."):
            raise ConfigError(f"{place}, whose code is not of this project and would not go with the model; remove the run from task.of")
        task_class = import_class(settings.implementation, Task, "a task")  # type: ignore[type-abstract]
        if not issubclass(task_class, Supervised):
            raise ConfigError(f"{place}, whose outputs have no average; name runs that predict a target, as those of kind tabular do")
        data = self.data.without(settings.left_out)
        task, loss, own_loss = task_class(settings, data), _describe_loss(settings), _describe_loss(self.settings)
        if (type(task.target), task.outputs, loss) != (type(self.target), self.outputs, own_loss):
            raise ConfigError(f"{place} with task.loss {loss}, and the ensemble has {own_loss}; set task.loss to that of all its members")
        return task

    @property
    def rows_at_once(self) -> int | None:
        return min((task.rows_at_once for task in self.members if task.rows_at_once), default=None)

    def model(self) -> nn.Module:
        return EnsembleNetwork([task.model() for task in self.members], self.target)


def _describe_loss(settings: TaskSettings) -> str:
    return f"quantiles, and task.quantiles {list(settings.quantiles)}" if settings.loss == "quantiles" else settings.loss
