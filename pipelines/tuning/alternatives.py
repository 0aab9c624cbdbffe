"""Models of other kinds that a search compares with its winner, each trained to the end once: which kind suits a table is often closer than
what its settings decide, and an average of several kinds is better than one of the best kind alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.section import expand_kind
from pipelines.config.train.base import FOR_EVERY_TASK
from pipelines.data.versions.versions import Version, leave_out_features
from pipelines.errors import ConfigError, LockstepError
from pipelines.launch.checks import check_training
from pipelines.tasks.bind import build_task
from pipelines.tuning.space import config_values


@dataclass(frozen=True)
class AlternativeResult:
    """A model of `tune.alternatives` that was trained to the end."""

    kind: str
    """Of its task."""
    run_id: str
    """Empty if it has failed."""
    score: float | None
    """The search's metric, of the best epoch; None if it has failed, or if that is not defined."""
    error: str = ""


def alternative_settings(config: Config, number: int) -> dict[str, Any]:
    """The sections `task` and `train` of an alternative, counted from 1: its own, and what the config says of where a training runs."""
    alternative = config.tune.alternatives[number - 1]
    kept = {name: value for name, value in config_values(config)["train"].items() if name in FOR_EVERY_TASK}
    return {"task": expand_kind(alternative.task), "train": {**kept, **alternative.train}}


def alternative_configs(config: Config) -> list[Config]:
    """The configs of `tune.alternatives`. Raises ConfigError with the faults of the first that has some."""
    return [_parse(config, number) for number in range(1, len(config.tune.alternatives) + 1)]


def check_alternatives(config: Config, version: Version, metric: str) -> None:
    """Raise ConfigError, before anything starts, for an alternative that this dataset version cannot be trained with, or that has another
    metric than the search."""
    for number, alternative in enumerate(alternative_configs(config), 1):
        try:
            build_task(alternative.task, version.manifest).choose_monitor(metric)
            check_training(alternative, leave_out_features(version, alternative.task.left_out))
        except LockstepError as error:
            raise ConfigError(f"tune.alternatives, model {number}: {error}; give another model, or remove it") from error


def _parse(config: Config, number: int) -> Config:
    values: Mapping[str, Any] = {**config_values(config), **alternative_settings(config, number)}
    return parse(dict(values), f"tune.alternatives, model {number}")
