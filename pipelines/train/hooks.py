"""Callbacks of the loop: it tells them what it does, and asks them whether to go on. `launch` connects them with Ray and MLflow."""

from typing import Any, Protocol


class Hooks(Protocol):
    def log(self, step: int, metrics: dict[str, float]) -> None:
        """A point of the curves; called on rank 0 only. Returns at once."""

    def write(self, epoch: int, text: str) -> None:
        """What a task gives to look at after an epoch, counted from 1; called on rank 0 only. Returns at once."""

    def epoch(self, number: int) -> None:
        """Epoch `number`, counted from 1, begins or goes on."""

    def step(self, number: int) -> None:
        """Step `number` of the run, counted from 0, begins. Returns at once."""

    def asked_to_stop(self) -> bool:
        """Whether this worker was asked to save and leave. Asked before every step; answers at once and does nothing else."""

    def asked_to_break_off(self) -> bool:
        """Whether an evaluation should be broken off, for the same reason. Asked before every batch; one worker's yes is enough."""

    def unsent(self) -> list[Any]:
        """Points that nobody has acknowledged yet, as JSON values; a checkpoint keeps them."""

    def resend(self, points: list[Any]) -> None:
        """Log again what a checkpoint kept."""

    def saved(self, step: int, path: str) -> None:
        """A checkpoint counts from now on. All workers call it, at the same step."""


class Silent:
    """Nobody listens."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        pass

    def write(self, epoch: int, text: str) -> None:
        pass

    def epoch(self, number: int) -> None:
        pass

    def step(self, number: int) -> None:
        pass

    def asked_to_stop(self) -> bool:
        return False

    def asked_to_break_off(self) -> bool:
        return False

    def unsent(self) -> list[Any]:
        return []

    def resend(self, points: list[Any]) -> None:
        pass

    def saved(self, step: int, path: str) -> None:
        pass
