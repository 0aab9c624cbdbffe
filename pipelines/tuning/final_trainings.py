"""The last trainings of a search: its winner to the end, and with fresh seeds, for figures that the search has not chosen."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.search_files import TrialResult
from pipelines.tracking.search_run import TRIAL
from pipelines.tuning.placement import Answer, TrialTask
from pipelines.tuning.search import DONE, NoJob
from pipelines.tuning.search_result import FreshSeeds, fresh_seeds

FINAL = "final"
"""Kind of these tasks, in their keys."""
SEED = "seed"
"""Tag of a training of the winner with a fresh seed."""


class FinalTrainings:
    """The winner's training to the end, and trainings of its settings with so many fresh seeds, all of which a run of MLflow holds."""

    def __init__(self, winner: TrialResult, config: Config, version: Version, seeds: int, parent: str) -> None:
        self.winner, self._parent = winner, parent
        self._configs = [config, *(_replace_seed(config, config.train.seed + place) for place in range(1, seeds + 1))]
        self._results: dict[int, Mapping[str, Any]] = {}
        for number, trained in enumerate(self._configs):
            if (finished := tracking.find_finished_training(trained, version)) is not None:
                self._results[number] = json.loads(finished[1])
        self._waiting = [number for number in range(len(self._configs)) if number not in self._results]

    def next_task(self) -> TrialTask | NoJob:
        """The next training that is not in MLflow."""
        if not self._waiting:
            return DONE
        number = self._waiting.pop(0)
        config = self._configs[number]
        role = {SEED: str(config.train.seed)} if number else {TRIAL: str(self.winner.number)}
        return TrialTask((FINAL, number), config.model_dump(mode="json", by_alias=True), None, {PARENT: self._parent, **role})

    def take(self, number: int, answer: Answer) -> None:
        """Take the answer of a training. Raises LockstepError if it has failed."""
        if answer.error:
            raise LockstepError(f"the winner, trial {self.winner.number}, could not be trained to the end: {answer.error}")
        self._results[number] = answer.result

    @property
    def model(self) -> str:
        """URI of the winner's model."""
        return str(self._results[0]["model"])

    def fresh(self, metric: str, direction: Literal["min", "max"]) -> FreshSeeds:
        """The figures of the fresh seeds."""
        results = [(str(self._results[number]["run_id"]), self._results[number]["metrics"]) for number in range(1, len(self._configs))]
        return fresh_seeds(metric, direction, self.winner.score, results)


def _replace_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
