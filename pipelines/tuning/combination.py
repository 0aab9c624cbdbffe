"""The model that a search ends in beside its winner: the average of the best trials' models, where a task combines those of runs."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.defaults import convert_to_task
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
from pipelines.launch.initial_weights import fill_in_origins
from pipelines.tracking.search_files import TrialResult
from pipelines.tuning.space import config_values
from pipelines.tuning.trial_versions import TrialVersions


@dataclass(frozen=True)
class CombinedModel:
    """The model that averages those of runs, chosen by the validation split."""

    run_id: str
    model: str
    """Its URI."""
    of: tuple[str, ...]
    """The runs among which it was chosen."""
    validation: float | None
    """The search's metric."""
    test: float | None


def read_combination(metric: str, runs: Sequence[str], answer: Mapping[str, Any]) -> CombinedModel:
    """The combined model, of the result of its training."""
    metrics = answer["metrics"]
    return CombinedModel(
        str(answer["run_id"]), str(answer["model"]), tuple(runs), metrics.get(f"validation/{metric}"), metrics.get(f"test/{metric}")
    )


def check_combination(config: Config) -> None:
    """Raise ConfigError if a search is to combine models that have no average, or if no task that is installed combines any."""
    if config.tune.combine and not config.task.has_average:
        raise ConfigError(f"tune.combine is {config.tune.combine}, but models of kind {config.task.kind} have no average; set it to 0")
    if config.tune.combine and not _combining_kinds():
        raise ConfigError(f"tune.combine is {config.tune.combine}, but no task of this installation combines models; set it to 0")


def combination_config(config: Config, runs: Sequence[str], versions: TrialVersions) -> Config:
    """The config of the model that averages those of finished runs, which are trainings of `config` with other settings. Raises ConfigError
    if they cannot be averaged."""
    kind = _combining_kinds()[0]
    task = {"kind": kind, TASKS.by_name[kind].origins_setting: list(runs), "use": {}}
    values, _ = convert_to_task(deepcopy(config_values(config)), task)
    combination = parse(values, "the combination of trials")
    version = versions.get(combination)
    combination = fill_in_origins(combination, version)
    check_training(combination, version)
    return combination


def best_trials(trials: Sequence[TrialResult], last_rung: int, direction: str, count: int) -> list[TrialResult]:
    """So many of the best trials that came to the last rung, so that no epoch is trained for them; of those that are one training, the
    first."""
    sign = -1 if direction == "max" else 1
    at_end = [trial for trial in trials if trial.score is not None and not trial.error and trial.rung == last_rung]
    ranked = sorted(at_end, key=lambda trial: (sign * (trial.score or 0.0), trial.number))
    first_by_run = {trial.run_id: trial for trial in reversed(ranked)}
    return [trial for trial in ranked if first_by_run[trial.run_id] is trial][:count]


def _combining_kinds() -> list[str]:
    return [kind for kind, settings in TASKS.by_name.items() if settings.origins_setting]
