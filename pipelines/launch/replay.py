"""A training that is compared, step by step, with the trail of an earlier one: what a verification's workers do."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from pipelines.checkpoint.digest_log import Trail, machine_of
from pipelines.checkpoint.run_directory import PROGRESS, STOP, Folder
from pipelines.collectives.place import Place
from pipelines.launch.heartbeat import Pulse
from pipelines.launch.reports import Reports
from pipelines.launch.worker import Assignment, attempted, placed, prepared
from pipelines.loader import Loader
from pipelines.parallel.strategy import Strategy
from pipelines.tasks.base import Batch
from pipelines.train.loop import Loop
from pipelines.train.state import total_steps
from pipelines.weights import digests, model_digest, weights_of

_LOOK_SECONDS = 2.0


@dataclass
class Found:
    """What a comparison came to; the same on all workers."""

    losses: int = 0
    """Steps whose losses were compared."""
    saved: list[int] = field(default_factory=list)
    """Steps after which model and optimizer were compared."""
    loss: tuple[int, float, float] | None = None
    """The first step whose loss differs, its loss in the trail and here."""
    tensors: tuple[int, list[str]] | None = None
    """The first of `saved` after which tensors differ, and their names, the model's first."""


class Witness:
    """A strategy that compares every step of another with a trail."""

    def __init__(self, strategy: Strategy, trail: Trail, steps: int | None) -> None:
        """It is done after so many steps, or at the first saved step that shows what differs."""
        self._strategy, self._trail, self._steps = strategy, trail, steps
        self.model = strategy.model
        self.found, self.is_done = Found(), False

    def batches(self, loader: Loader) -> Iterator[Any]:
        return self._strategy.batches(loader)

    def step(self, batch: Any, number: int, rate: float, votes: Sequence[float], measured: bool = True) -> Tensor:
        sums = self._strategy.step(batch, number, rate, votes, measured)
        if not self.is_done:
            self._compare(number + 1, float(sums[2]))
        return sums

    def predict(self, batch: Batch) -> Tensor:
        return self._strategy.predict(batch)

    def settle(self) -> None:
        self._strategy.settle()

    def state_dict(self) -> dict[str, Any]:
        return self._strategy.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._strategy.load_state_dict(state)

    def _compare(self, step: int, loss: float) -> None:
        found, wanted = self.found, self._trail.losses.get(step)
        if wanted is not None:
            found.losses += 1
            if found.loss is None and wanted != loss:
                found.loss = (step, wanted, loss)
        if (saved := self._trail.digests.get(step)) is not None:
            found.saved.append(step)
            own = digests(self.state_dict())
            differing = [name for name in [*own, *sorted(saved.keys() - own.keys())] if own.get(name) != saved.get(name)]
            if differing:
                found.tensors = (step, differing)
            self.is_done = bool(differing or found.loss)
        self.is_done = self.is_done or step == self._steps


class WitnessReports(Reports):
    """Whom a verification's loop tells: the driver, through the verification's own folder, and no MLflow."""

    def __init__(self, folder: Folder, pulse: Pulse, witness: Witness, place: Place, progress: dict[str, Any]) -> None:
        super().__init__(folder, pulse)
        self._witness, self._is_first, self._progress = witness, place.rank == 0, progress
        self._looked = time.monotonic()
        self.stopped = False
        """Whether the driver asked to."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._progress = {**self._progress, "step": step, "metrics": {**self._progress["metrics"], **metrics}}

    def epoch(self, number: int) -> None:
        self._progress = {**self._progress, "epoch": number}

    def saved(self, step: int, path: str) -> None:
        """Ray need not know: a verification that loses a worker is over."""

    def asked_to_stop(self) -> bool:
        super().asked_to_stop()
        if self._is_first and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._folder.put_json(PROGRESS, self._progress, durable=False)
            self.stopped = self._folder.has(STOP)
        return self.stopped or self._witness.is_done


def work_again(settings: dict[str, Any]) -> dict[str, Any]:
    """Ray Train's training function of a verification: `settings` holds an Assignment, a Trail, and how many steps.

    Returns `Trained` as a dict, with `found`, the machine and the model's digest; nothing if the driver asked to stop.
    """
    return attempted(settings["assignment"], partial(_train_again, settings["trail"], settings["steps"]))


def _train_again(trail: Trail, steps: int | None, assignment: Assignment, folder: Folder) -> dict[str, Any]:
    config, place = placed(assignment)
    with Pulse(folder, place, config.train.timeout_seconds) as pulse:
        task, strategy, checkpoints = prepared(config, assignment, folder, place)
        witness = Witness(strategy, trail, steps)
        total = total_steps(config, assignment.version.rows("train"))
        progress = {"step": 0, "steps": total, "epoch": 0, "epochs": config.train.epochs, "metrics": {}}
        reports = WitnessReports(folder, pulse, witness, place, progress)
        trained = Loop(config, assignment.version, task, witness, place, checkpoints, reports).run()
    if reports.stopped:
        return {}
    digest = model_digest(weights_of(strategy.model)) if trained.finished else ""
    return {**asdict(trained), "found": witness.found, "machine": machine_of(place.device), "digest": digest}
