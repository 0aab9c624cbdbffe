"""The cost of checkpoints: the same steps of two workers with a save every ten seconds, and without."""

import statistics
import time
from pathlib import Path
from typing import Any

from groups import run_group
from trainings import open_dataset, training

from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

WORKERS, WARM_STEPS = 2, 20
WITH, WITHOUT = {"every_seconds": 10}, {"every_seconds": 1e9}


class Clock(Hooks):
    """Records when each step begins, and which steps are saved."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.saved_steps: list[int] = []

    def step(self, number: int) -> None:
        self.began.append(time.perf_counter())

    def report_checkpoint(self, step: int, path: str) -> None:
        self.saved_steps.append(step)


def rate(context: WorkerContext, folder: str, runs: str, steps: int, checkpoint: dict[str, Any]) -> tuple[float, int]:
    """Steps a second, and the number of saves."""
    config = training(
        Path(folder),
        rows=64_000,
        task={"kind": "tabular", "hidden": [1_024] * 4},
        workers=WORKERS,
        global_batch=512,
        epochs=1_000,
        max_steps=steps,
        checkpoint=checkpoint,
    )
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    clock = Clock()
    checkpoints = Checkpoints(RunDirectory(runs), context, 2)
    Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, clock).run()
    return (len(clock.began) - 1 - WARM_STEPS) / (clock.began[-1] - clock.began[WARM_STEPS]), len(clock.saved_steps)


def checkpoint_cost(folder: Path, seconds: float, rounds: int) -> dict[str, float]:
    """Share of the throughput that saving every ten seconds takes: the median over rounds of pairs."""
    training(folder, rows=64_000, task={"kind": "tabular", "hidden": [1_024] * 4})
    pace, _ = run_group(WORKERS, folder / "pace", rate, str(folder), f"{folder}/pace-run", 120, WITHOUT)[0]
    steps, shares, saves = max(200, int(pace * seconds)), [], 0
    for number in range(rounds):
        rates = {}
        for name, checkpoint in sorted({"with": WITH, "without": WITHOUT}.items(), reverse=bool(number % 2)):
            group = folder / f"{number}-{name}"
            rates[name], group_saves = run_group(WORKERS, group, rate, str(folder), f"{group}-run", steps, checkpoint)[0]
            saves += group_saves if name == "with" else 0
        shares.append(1 - rates["with"] / rates["without"])
    return {"share": statistics.median(shares), "least": min(shares), "most": max(shares), "steps": steps, "saves": saves}
