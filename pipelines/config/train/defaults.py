"""Defaults of `train` that follow from the task, and which strategy trains it."""

from typing import Any

from pipelines.config.tasks.base import TaskSettings
from pipelines.config.train.strategies import strategy_kinds, strategy_settings_class
from pipelines.config.train.strategy import StrategySettings
from pipelines.config.train.train import Train


def fill_train_defaults(values: dict[str, Any], task: type[TaskSettings]) -> dict[str, Any]:
    """Plain values of a config in which `train` has the defaults of its task, and the strategy that trains it."""
    train, task_values = values.get("train") or {}, values.get("task") or {}
    if isinstance(task_values, TaskSettings):  # of a config that is built in Python, as is this
        task_values = dict(task_values)
    if isinstance(train, Train):
        train = {name: getattr(train, name) for name in train.model_fields_set}
    defaults = task.defaults_for_training(task_values if isinstance(task_values, dict) else {})
    if not isinstance(train, dict) or not (defaults or task.needs_own_strategy):
        return values
    filled = {**defaults, **train}
    if task.needs_own_strategy:
        strategy = filled.get("strategy", {})
        if isinstance(strategy, dict) and (kinds := _find_strategy_kinds(task)):
            filled["strategy"] = {"kind": kinds[0], **strategy}
    return {**values, "train": filled}


def check_strategy(task: TaskSettings, strategy: StrategySettings) -> None:
    """Raise ValueError if the strategy does not train the task."""
    kinds = _find_strategy_kinds(type(task))
    if task.needs_own_strategy and not kinds:
        raise ValueError(f"task.kind is {task.kind}, which no strategy of this installation trains (got {strategy.kind})")
    if task.needs_own_strategy and task.kind not in strategy.tasks:
        raise ValueError(
            f"train.strategy is {strategy.kind}, which does not train a task of kind {task.kind}; set it to {' or '.join(kinds)}, or "
            "remove it"
        )
    if strategy.tasks and task.kind not in strategy.tasks:
        raise ValueError(
            f"train.strategy is {strategy.kind}, which trains no task of kind {task.kind}; set task.kind to {' or '.join(strategy.tasks)}, "
            "or remove train.strategy"
        )


def _find_strategy_kinds(task: type[TaskSettings]) -> list[str]:
    """Kinds of strategies whose settings have the task's kind in `tasks`."""
    kind = task.model_fields["kind"].default
    return [name for name in strategy_kinds() if kind in strategy_settings_class(name).tasks]
