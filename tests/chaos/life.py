"""One life of a training: until kill -9 of some workers at a random moment, or to its end."""

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import psutil

from chaos.processes import actors
from pipelines.config import Config
from pipelines.launch.training_run import Result, train
from pipelines.train.checkpoint.run_directory import PROGRESS

STARTS = 0.25
"""Share of the lives that end while workers start."""
START_SECONDS, STEP_SECONDS = 8.0, 2.0
"""A kill comes so long after the first worker process at most, or so long after the first step."""


@dataclass(frozen=True)
class Kill:
    victims: int
    moment: float


class Life:
    """A training in one layout until its workers are killed, or to its end.

    Ray starts a group again whose start fails, in the same layout: such a life has a second kill.
    """

    def __init__(self, config: Config, chance: random.Random | None) -> None:
        self._config, self._chance, self._over = config, chance, Event()
        self.kills: list[Kill] = []
        self.first_step = 0.0
        """When it was seen; 0 if none was."""
        self.result: Result | None = None
        self.error = ""

    def __str__(self) -> str:
        killed = ", ".join(f"{kill.victims} killed" for kill in self.kills) or "none killed"
        return f"{killed}, first step {'seen' if self.first_step else 'not seen'}: {self.error[:150] or 'ended'}"

    @property
    def fault(self) -> str:
        """A sentence if something is wrong: without a kill it must end well, and after one in a TrainingError."""
        return self.error if self.error and (not self.kills or not self.error.startswith("TrainingError")) else ""

    def run(self) -> None:
        for file in self._progress_files():
            file.unlink()
        thread = Thread(target=self._disturb, daemon=True)
        thread.start()
        try:
            self.result = train(self._config)
        except Exception as error:  # an outcome, which the table shows
            self.error = f"{type(error).__name__}: {error}"
        self._over.set()
        thread.join()

    def _disturb(self) -> None:
        chance = self._chance
        if chance and chance.random() < STARTS and self._wait_until(_workers):
            time.sleep(chance.uniform(0.0, START_SECONDS))
            self._kill(chance)
        if self._wait_until(self._steps):
            self.first_step = time.time()
            if chance:
                time.sleep(chance.uniform(0.0, STEP_SECONDS))
                self._kill(chance)

    def _kill(self, chance: random.Random) -> None:
        alive, victims = _workers(), 0
        for worker in chance.sample(alive, min(len(alive), chance.randint(1, 2))):
            with suppress(psutil.NoSuchProcess):
                worker.kill()
                victims += 1
        if victims:
            self.kills.append(Kill(victims, time.time()))

    def _wait_until(self, holds: Callable[[], object]) -> bool:
        """Return whether it holds before the training is over."""
        while not holds():
            if self._over.wait(0.05):
                return False
        return True

    def _steps(self) -> int:
        """The latest step in the progress files of this group of workers."""
        return max((int(json.loads(file.read_text())["step"]) for file in self._progress_files()), default=0)

    def _progress_files(self) -> list[Path]:
        return list(Path(self._config.train.storage).glob(f"*/{PROGRESS}"))


def _workers() -> list[psutil.Process]:
    return actors("RayTrainWorker")
