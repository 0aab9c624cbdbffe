"""Settings of `train` that follow from the task, and which strategy trains it."""

from collections.abc import Mapping
from typing import Any

from pipelines.config.section import expand_kind
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.tasks.functions import task_settings
from pipelines.config.train.base import FOR_EVERY_TASK
from pipelines.config.train.strategy import STRATEGIES, StrategySettings
from pipelines.config.train.train import Train


def fill_train_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values of a config in which `train` has the defaults of its task, and the strategy that trains it."""
    train, task_values = values.get("train") or {}, expand_kind(values.get("task") or {})
    try:
        task = type(task_values) if isinstance(task_values, TaskSettings) else task_settings(task_values)
    except (ValueError, AttributeError):  # which reading the section will say
        return values
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


def convert_to_task(values: Mapping[str, Any], task: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The plain values of a config for another `task`, of which plain values are given, and the dotted names of what is left out.

    Of the old task stays what the new one has too. Where either has training of its own, as trees have, `train` keeps only what means the
    same for both: the learning rate of a network is none of trees."""
    old = values.get("task")
    old = old if isinstance(old, Mapping) else {}
    try:
        old_class, new_class = task_settings(old), task_settings({**old, **task})
    except ValueError:  # which reading the config will say
        return {**values, "task": {**old, **task}}, []
    kept_task = {name: value for name, value in old.items() if name == "kind" or name in new_class.model_fields}
    left_out = [f"task.{name}" for name in old if name not in kept_task and name not in task]
    new_values = {**values, "task": {**kept_task, **task}}
    train = values.get("train")
    has_own_training = any(kind.needs_own_strategy or kind.defaults_for_training({}) for kind in (old_class, new_class))
    if isinstance(train, Mapping) and old_class is not new_class and has_own_training:
        new_values["train"] = {name: value for name, value in train.items() if name in FOR_EVERY_TASK}
        left_out += [f"train.{name}" for name in train if name not in FOR_EVERY_TASK]
    return new_values, left_out


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
    return [name for name, settings in STRATEGIES.by_name.items() if kind in settings.tasks]
