"""The last trainings of a search: its winner to the end, and with fresh seeds, for figures that the search has not chosen; then the next
best trials to the end, and the model that averages all of these."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pipelines import tracking
from pipelines.config import Config
from pipelines.errors import LockstepError
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.search_files import TrialResult
from pipelines.tracking.search_run import TRIAL
from pipelines.tuning.combination import CombinedModel, combination_config, read_combination
from pipelines.tuning.placement import Answer, TrialTask
from pipelines.tuning.search import DONE, WAIT, NoJob
from pipelines.tuning.search_result import FreshSeeds, fresh_seeds
from pipelines.tuning.trial_versions import TrialVersions

log = logging.getLogger(__name__)

FINAL = "final"
"""Kind of these tasks, in their keys."""
SEED, COMBINED = "seed", "combined"
"""Tags of a training of the winner with a fresh seed, and of the model that averages others."""


class FinalTrainings:
    """Trainings of trials to the end, the first of which is the winner, and of the winner's settings with so many fresh seeds, all of which
    a run of MLflow holds. With `combines`, a model that averages all of them comes last."""

    def __init__(
        self, trials: Sequence[tuple[TrialResult, Config]], versions: TrialVersions, seeds: int, parent: str, combines: bool
    ) -> None:
        (self.winner, config), *others = trials
        self._versions, self._parent, self._seeds = versions, parent, seeds
        fresh = [_replace_seed(config, config.train.seed + place) for place in range(1, seeds + 1)]
        self._configs = [config, *fresh, *(other for _, other in others)]
        self._roles = [{TRIAL: str(self.winner.number)}, *({SEED: str(other.train.seed)} for other in fresh)]
        self._roles += [{TRIAL: str(trial.number)} for trial, _ in others]
        self._results: dict[int, Mapping[str, Any]] = {}
        self._failed: set[int] = set()
        self._waiting = [number for number in range(len(self._configs)) if not self._is_finished(number)]
        self._combines = combines

    def next_task(self) -> TrialTask | NoJob:
        """The next training that is not in MLflow."""
        if not self._waiting and self._combines:
            if len(self._results) + len(self._failed) < len(self._configs):
                return WAIT
            self._combines = False
            self._add_combination()
        if not self._waiting:
            return DONE
        number = self._waiting.pop(0)
        config = self._configs[number]
        tags = {PARENT: self._parent, **self._roles[number]}
        return TrialTask((FINAL, number), config.model_dump(mode="json", by_alias=True), self._versions.open(config), None, tags)

    def take(self, number: int, answer: Answer) -> None:
        """Take the answer of a training. Raises LockstepError if it has failed, and is one of the winner's; others are only left out."""
        if not answer.error:
            self._results[number] = answer.result
        elif number <= self._seeds:
            raise LockstepError(f"the winner, trial {self.winner.number}, could not be trained to the end: {answer.error}")
        else:
            self._failed.add(number)
            what = "the average of models" if COMBINED in self._roles[number] else "a trial that was to be combined"
            log.warning("%s could not be trained to the end, and is left out: %s", what, answer.error)

    @property
    def model(self) -> str:
        """URI of the winner's model."""
        return str(self._results[0]["model"])

    def fresh(self, metric: str, direction: Literal["min", "max"]) -> FreshSeeds:
        """The figures of the fresh seeds."""
        results = [(str(self._results[number]["run_id"]), self._results[number]["metrics"]) for number in range(1, self._seeds + 1)]
        return fresh_seeds(metric, direction, self.winner.score, results)

    def combination(self, metric: str) -> CombinedModel | None:
        """The model that averages the others, if there is one."""
        number = len(self._configs) - 1
        if COMBINED not in self._roles[number] or number not in self._results:
            return None
        return read_combination(metric, self._runs(number), self._results[number])

    def _add_combination(self) -> None:
        """Add the training of the model that averages those of all others. Where they cannot be averaged, a warning says why."""
        try:
            config = combination_config(self._configs[0], self._runs(len(self._configs)), self._versions)
        except LockstepError as error:
            log.warning("the models of the best trials are not combined: %s", error)
            return
        self._configs.append(config)
        self._roles.append({COMBINED: str(len(self._results))})
        number = len(self._configs) - 1
        self._waiting = [] if self._is_finished(number) else [number]

    def _runs(self, before: int) -> list[str]:
        return list(dict.fromkeys(str(self._results[number]["run_id"]) for number in sorted(self._results) if number < before))

    def _is_finished(self, number: int) -> bool:
        """Whether a training is in MLflow already, whose result is taken then."""
        config = self._configs[number]
        finished = tracking.find_finished_training(config, self._versions.open(config))
        if finished is not None:
            self._results[number] = json.loads(finished[1])
        return finished is not None


def _replace_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
