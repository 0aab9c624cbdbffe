"""Parameter servers under kill -9: servers, backups and workers at random moments of a training, which must not notice.

Synchronous trainings must end with the weights of strategy `exact`; in every mode the rows that the servers have applied are counted.
"""

import json
import random
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

from trainings import training

from chaos.processes import actors
from chaos.training import Outcome
from pipelines.config import Config
from pipelines.launch.training_run import train

ROWS, BATCH, EPOCHS = 9_600, 64, 2
STEPS = EPOCHS * ROWS // BATCH
STEPS_PER_FAULT = 40
FAULTS = {
    "server killed": ("ServerActor",),
    "worker killed": ("RayTrainWorker",),
    "server and worker killed": ("ServerActor", "RayTrainWorker"),
    "two servers killed": ("ServerActor", "ServerActor"),
}
"""What each kills at the same time; backups are servers too."""
MODES: list[dict[str, Any]] = [{"mode": "sync"}, {"mode": "async"}, {"mode": "bounded", "staleness": 2}]


def reference_digest(folder: Path) -> str:
    """The digest of the model of strategy `exact`."""
    return train(_config(folder, strategy="exact")).model_digest


def disturb(number: int, seed: int, folder: Path, digest: str) -> list[Outcome]:
    """One training, in a mode that depends on its number, with a fault every STEPS_PER_FAULT steps or so."""
    mode = MODES[number % len(MODES)]
    config = _config(folder, strategy={"kind": "parameter_server", "servers": 2, "backups": 1, **mode}, max_failures=100)
    outcomes: list[Outcome] = []
    over = Event()
    thread = Thread(target=_disturb, args=(config, random.Random(f"{seed}/{number}"), outcomes, over), daemon=True)
    thread.start()
    try:
        result = train(config)
        wrong = [] if result.rows == STEPS * BATCH else [f"{result.rows} rows instead of {STEPS * BATCH}"]
        wrong += ["other weights"] if mode["mode"] == "sync" and result.model_digest != digest else []
    except Exception as error:  # an outcome, which the table shows
        wrong = [f"{type(error).__name__}: {error}"]
    over.set()
    thread.join()
    for outcome in outcomes:
        outcome.recovered, outcome.note = not wrong, f"{mode['mode']}{': ' if wrong else ''}{', '.join(wrong)}"
    return outcomes


def _config(folder: Path, **settings: Any) -> Config:
    folder.mkdir(exist_ok=True)
    settings = {"workers": 2, "epochs": EPOCHS, "clip_norm": 1.0, "global_batch": BATCH, **settings}
    return training(folder, rows=ROWS, task={"dropout": 0.2}, **settings)


def _disturb(config: Config, chance: random.Random, outcomes: list[Outcome], over: Event) -> None:
    due = chance.randrange(1, STEPS_PER_FAULT)
    while due < STEPS - STEPS_PER_FAULT and _wait_for_step(config, due, over):
        fault = chance.choice(list(FAULTS))
        over.wait(chance.random() / 4)
        moment = time.time()
        for kind in FAULTS[fault]:
            if processes := actors(kind):
                chance.choice(processes).kill()
        step = _step(config)
        if not _wait_for_step(config, step + 1, over):
            return
        outcomes.append(Outcome(fault, False, time.time() - moment))
        due = step + chance.randrange(STEPS_PER_FAULT // 2, 3 * STEPS_PER_FAULT // 2)


def _wait_for_step(config: Config, step: int, over: Event) -> bool:
    """Return whether the step comes before the training is over."""
    while _step(config) < step:
        if over.wait(0.05):
            return False
    return True


def _step(config: Config) -> int:
    for file in Path(config.train.storage).glob("*/progress.json"):
        return int(json.loads(file.read_text())["step"])
    return 0
