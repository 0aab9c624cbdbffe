"""Callbacks of the loop, for its progress and for requests to stop. `launch` connects them with Ray and MLflow."""

from collections.abc import Mapping
from typing import Any

from pipelines.tasks.details import EvaluationData
from pipelines.tasks.metrics.table import Value


class Hooks:
    """These do nothing; a subclass has those that it needs."""

    def log(self, step: int, metrics: Mapping[str, Value]) -> None:
        """Log a point of the curves; metrics without a value are not logged. Called on rank 0 only; returns at once."""

    def write(self, epoch: int, text: str) -> None:
        """Log a task's samples after an epoch, counted from 1. Called on rank 0 only; returns at once."""

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        """Write the details of a split, with the weights of the best epoch so far. Called on rank 0 only."""

    def epoch(self, number: int) -> None:
        """Epoch `number`, counted from 1, begins or resumes."""

    def step(self, number: int) -> None:
        """Step `number` of the run, counted from 0, begins. Returns at once."""

    def must_stop_training(self) -> bool:
        """Whether this worker was asked to save and stop. Called before every step; returns at once and has no side effect."""
        return False

    def must_stop_evaluation(self) -> bool:
        """Whether to stop an evaluation, for the same reason. Called before every batch; one worker is enough to stop all."""
        return False

    def unsent(self) -> list[Any]:
        """Points that the tracking server has not acknowledged, as JSON values. A checkpoint saves them."""
        return []

    def resend(self, points: list[Any]) -> None:
        """Log the points from a checkpoint again."""

    def report_checkpoint(self, step: int, path: str) -> None:
        """The checkpoint of `step` at `path` is complete. All workers call it at the same step."""
