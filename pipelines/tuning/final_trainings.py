"""The last trainings of a search, each to the end: its winner and the alternatives; the best of these with fresh seeds, for figures that
the search has not chosen; the next best trials; and the model that averages all of these."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.tuning import Tune
from pipelines.errors import LockstepError, TrackingError
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.search_files import TrialResult
from pipelines.tracking.search_run import TRIAL
from pipelines.tuning.alternatives import AlternativeModel, AlternativeResult
from pipelines.tuning.combination import CombinedModel, combination_config, read_combination
from pipelines.tuning.placement import Answer, TrialTask
from pipelines.tuning.search import DONE, WAIT, NoJob, rank
from pipelines.tuning.search_result import FreshSeeds, fresh_seeds
from pipelines.tuning.trial_versions import TrialVersions

log = logging.getLogger(__name__)

FINAL = "final"
"""Kind of these tasks, in their keys."""
ALTERNATIVE, SEED, COMBINED = "alternative", "seed", "combined"
"""Tags of a training of an alternative, of the best model with a fresh seed, and of the model that averages others."""


@dataclass(frozen=True)
class _Training:
    config: Config
    tags: Mapping[str, str]
    description: str
    """In the words of messages."""
    is_needed: bool = False
    """Whether the search has no result without it."""


class FinalTrainings:
    """Trainings of trials, the first of which is the winner, and of alternatives, in stages: each stage follows from the results before."""

    def __init__(
        self,
        trials: Sequence[tuple[TrialResult, Config]],
        alternatives: Sequence[AlternativeModel],
        versions: TrialVersions,
        settings: Tune,
        monitor: tuple[str, Literal["min", "max"]],
        parent: str,
    ) -> None:
        """`monitor` is the metric of the search, and whether less or more of it is better; `parent` the run that holds all trainings."""
        (self.winner, config), *self._other_trials = trials
        self._versions, self._settings, self._parent = versions, settings, parent
        self._metric, self._direction = monitor
        self._kinds = [alternative.config.task.kind for alternative in alternatives]
        self._trainings: list[_Training] = []
        self._results: dict[int, Mapping[str, Any]] = {}
        self._errors: dict[int, str] = {}
        self._waiting: list[int] = []
        self._stages: list[Callable[[], None]] = [self._add_last_trainings, *([self._add_combination] if settings.combine else [])]
        self.chosen = 0
        """Number of the alternative that is better than the winner; 0 for none."""
        self._add(_Training(config, {TRIAL: str(self.winner.number)}, f"the winner, trial {self.winner.number},", is_needed=True))
        for number, alternative in enumerate(alternatives, 1):
            description = f"alternative {number}, {alternative.config.task.kind},"
            self._add(_Training(alternative.config, {ALTERNATIVE: str(number)}, description))
        if not alternatives:  # the winner is the best, and nothing need be awaited
            self._stages.pop(0)()

    def next_task(self) -> TrialTask | NoJob:
        """The next training that is not in MLflow."""
        while not self._waiting:
            if len(self._results) + len(self._errors) < len(self._trainings):
                return WAIT
            if not self._stages:
                return DONE
            self._stages.pop(0)()
        number = self._waiting.pop(0)
        config, tags = self._trainings[number].config, {PARENT: self._parent, **self._trainings[number].tags}
        return TrialTask((FINAL, number), config.model_dump(mode="json", by_alias=True), self._versions.get(config), None, tags)

    def take(self, number: int, answer: Answer) -> None:
        """Take the answer of a training. Raises TrackingError if MLflow cannot be used, and LockstepError if the training was interrupted,
        or has failed, and the search has no result without it."""
        training = self._trainings[number]
        if answer.kind == "TrackingError":
            raise TrackingError(answer.error)
        if not answer.error:
            self._results[number] = answer.result
        elif training.is_needed or answer.kind == "SystemExit":
            raise LockstepError(f"{training.description} could not be trained to the end: {answer.error}")
        else:
            self._errors[number] = answer.error
            log.warning("%s could not be trained to the end, and is left out: %s", training.description, answer.error)

    @property
    def model(self) -> str:
        """URI of the best model: the winner's, or that of an alternative."""
        return str(self._results[self.chosen]["model"])

    def fresh(self) -> FreshSeeds:
        """The figures of the fresh seeds of the best model."""
        numbers = [number for number in sorted(self._results) if SEED in self._trainings[number].tags]
        results = [(str(self._results[number]["run_id"]), self._results[number]["metrics"]) for number in numbers]
        score = self._score(self.chosen) if self.chosen else self.winner.score
        return fresh_seeds(self._metric, self._direction, score, results)

    def alternatives(self) -> tuple[AlternativeResult, ...]:
        """The results of the alternatives, in their order."""
        results = []
        for number, kind in enumerate(self._kinds, 1):
            run_id = str(self._results[number]["run_id"]) if number in self._results else ""
            results.append(AlternativeResult(kind, run_id, self._score(number), self._errors.get(number, "")))
        return tuple(results)

    def combination(self) -> CombinedModel | None:
        """The model that averages the others, if there is one."""
        number = len(self._trainings) - 1
        if COMBINED not in self._trainings[number].tags or number not in self._results:
            return None
        return read_combination(self._metric, self._members(number), self._results[number])

    def _add_last_trainings(self) -> None:
        """Choose the best model, of equal ones the winner, and add its fresh seeds and the trials that are combined with it."""
        ranks = [rank(self._score(number), self._direction) for number in range(len(self._trainings))]
        self.chosen = ranks.index(min(ranks)) if min(ranks) < inf else 0
        best = self._trainings[self.chosen]
        for place in range(1, self._settings.final_seeds + 1):
            config = _replace_seed(best.config, best.config.train.seed + place)
            self._add(_Training(config, {SEED: str(config.train.seed)}, f"{best.description} with seed {config.train.seed},"))
        for trial, config in self._other_trials:
            self._add(_Training(config, {TRIAL: str(trial.number)}, f"trial {trial.number}, which was to be combined,"))

    def _add_combination(self) -> None:
        """Add the training of the model that averages those of all others. Where they cannot be averaged, a warning says why."""
        runs = self._members(len(self._trainings))
        try:
            config = combination_config(self._trainings[self.chosen].config, runs, self._versions)
        except LockstepError as error:
            log.warning("the models of the best trials are not combined: %s", error)
            return
        self._add(_Training(config, {COMBINED: str(len(runs))}, "the average of models"))

    def _members(self, before: int) -> list[str]:
        """The runs before a number whose models can be averaged: of a task that has an average, on the dataset version of the best."""
        digest, runs = self._digest(self.chosen), list[str]()
        for number in sorted(self._results):
            config = self._trainings[number].config
            if number < before and config.task.has_average and self._digest(number) == digest:
                runs.append(str(self._results[number]["run_id"]))
        return list(dict.fromkeys(runs))

    def _digest(self, number: int) -> str:
        return self._versions.get(self._trainings[number].config).digest

    def _score(self, number: int) -> float | None:
        """The metric of a training's best epoch on validation; None if it has none."""
        value = self._results[number]["metrics"].get(f"validation/{self._metric}") if number in self._results else None
        return None if value is None else float(value)

    def _add(self, training: _Training) -> None:
        """Add a training. If it is finished in MLflow already, its result is taken."""
        number = len(self._trainings)
        self._trainings.append(training)
        finished = tracking.find_finished_training(training.config, self._versions.get(training.config))
        if finished is None:
            self._waiting.append(number)
        else:
            self._results[number] = json.loads(finished[1])


def _replace_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
