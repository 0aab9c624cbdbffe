"""Models of other kinds that a search compares with its winner, each trained to the end once: which kind suits a table is often closer than
what its settings decide, and an average of several kinds is better than one of the best kind alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.config.effects import ineffective_settings
from pipelines.config.load import parse
from pipelines.config.train.base import FOR_EVERY_TASK
from pipelines.config.tuning import Alternative
from pipelines.data.versions.folds import training_version
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, LockstepError
from pipelines.launch.checks import check_training
from pipelines.launch.initial_weights import fill_in_origins
from pipelines.tasks.bind import build_task
from pipelines.tuning.space import config_values


@dataclass(frozen=True)
class AlternativeModel:
    """A model of `tune.alternatives`, which is checked."""

    config: Config
    """As it is trained."""
    task: Mapping[str, Any]
    """Its section `task`, as the file of a config has it."""
    train: Mapping[str, Any]
    """Its own settings of `train`, with the metric of the search where the best epoch would be chosen by another one."""
    placement_names: frozenset[str]
    """The names of those that are the search's own, of where a training runs."""


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


def read_alternatives(config: Config, version: Version, metric: str) -> list[AlternativeModel]:
    """The models of `tune.alternatives`. Raises ConfigError, before anything starts, for the first that no config could have, that cannot
    be trained on this dataset version, or that does not have the search's metric."""
    models = []
    for number, alternative in enumerate(config.tune.alternatives, 1):
        place = f"tune.alternatives, model {number}"
        try:
            models.append(_read(config, alternative, version, metric, place))
        except LockstepError as error:
            text = str(error).replace("train.monitor is", "tune.metric is", 1)
            raise ConfigError(text if text.startswith(place) else f"{place}: {text}") from error
    return models


def _read(config: Config, alternative: Alternative, version: Version, metric: str, place: str) -> AlternativeModel:
    values = config_values(config)
    shared = {name: value for name, value in values["train"].items() if name in FOR_EVERY_TASK}
    values |= {"task": alternative.task, "train": {**shared, **alternative.train}}
    tried = parse(values, place, recorded=True)
    ineffective = {name.split(".")[1] for name, _ in ineffective_settings(tried) if name.startswith("train.")}
    placement = {name: value for name, value in shared.items() if name not in ineffective}
    task, own_train = build_task(tried.task, version.manifest), dict(alternative.train)
    if task.choose_monitor(tried.train.monitor)[0] != metric:
        own_train["monitor"] = task.choose_monitor(metric)[0]
        placement.pop("monitor", None)
    trained = parse({**values, "train": {**placement, **own_train}}, place)
    version = training_version(trained, version)
    trained = fill_in_origins(trained, version)
    check_training(trained, version)
    return AlternativeModel(trained, alternative.task, own_train, frozenset(placement))
