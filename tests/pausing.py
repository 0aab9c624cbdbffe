"""A strategy for a test that disturbs a training at a known moment: all workers wait before one step, until they are let go.

Ray's workers import it from the folder in which the tests were started.
"""

from pathlib import Path
from typing import Any

from pipelines.train.ddp.ddp import DataParallel
from pipelines.train.ddp.settings import Settings
from pipelines.train.exact.exact import Exact
from pipelines.train.exact.settings import Settings as ExactSettings
from pipelines.train.step_statistics import Flags, StepResult
from tests.waiting import wait_until

PAUSED_BEFORE = 143
"""The number of the step, counted from 0: this many are done."""
PAUSE_SECONDS = 240.0


class PausingSettings(Settings):
    implementation = "tests.pausing:Pausing"


class PausingExactSettings(ExactSettings):
    implementation = "tests.pausing:PausingExact"


class Pausing(DataParallel):
    """`ddp`, which waits before step PAUSED_BEFORE."""

    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if number == PAUSED_BEFORE:
            _pause(self._settings.storage, self._context.rank)
        return super().step(batch, number, rate, flags, compute_grad_norm)


class PausingExact(Exact):
    """`exact`, which waits before step PAUSED_BEFORE."""

    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if number == PAUSED_BEFORE:
            _pause(self._settings.storage, self._context.rank)
        return super().step(batch, number, rate, flags, compute_grad_norm)


def _pause(storage: str, rank: int) -> None:
    if not _go(storage).exists():
        _waiting(storage, rank).touch()
        wait_until(_go(storage).exists, "the test to let the workers go", PAUSE_SECONDS)


def count_waiting_workers(storage: str) -> int:
    """How many workers wait."""
    return sum(_waiting(storage, rank).exists() for rank in range(8))


def let_go(storage: str) -> None:
    _go(storage).touch()


def _go(storage: str) -> Path:
    return Path(f"{storage}.go")


def _waiting(storage: str, rank: int) -> Path:
    return Path(f"{storage}.waits-{rank}")
