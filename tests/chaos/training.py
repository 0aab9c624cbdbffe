"""A training under a series of faults, beside one of the same config that was left alone."""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from mlflow import MlflowClient
from trainings import training

from chaos.processes import Job, Nodes, Server
from chaos.trajectory import Attempt, Trajectory, attempts, steps_lost, surviving_steps
from pipelines.config import Config

ROWS, BATCH = 3_200, 64
STEPS_PER_EPOCH = ROWS // BATCH
STEPS_PER_FAULT = 110
TIMEOUT_SECONDS = 6.0
RECOVERY_SECONDS = 240.0


@dataclass
class Outcome:
    """One fault, and how the job went on."""

    fault: str
    recovered: bool
    seconds: float | None = None
    """From the fault to the next step that was made; None where no step had to wait."""
    detected: float | None = None
    """Of them, until new processes began."""
    started: float | None = None
    """Of them, until these had loaded torch and met."""
    note: str = ""


@dataclass
class Case:
    """A training and its disturbances."""

    name: str
    settings: dict[str, Any]
    """Of `train`."""
    faults: list[str]
    outcomes: list[Outcome] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    """Rows lost and repeated, and what was equal to the undisturbed training."""


class Scene:
    """A training as a process, on nodes and with a server that can be killed."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        epochs: int,
        nodes: Nodes,
        uri: str,
        step_seconds: float,
        nan_row: int | None = None,
    ) -> None:
        self.folder, self.nodes, self.records = folder, nodes, folder / "records"
        task = {"kind": "chaos.settings:Recorded", "records": str(self.records), "step_seconds": step_seconds}
        common = {"global_batch": BATCH, "epochs": epochs, "checkpoint": {"every_seconds": 1.5}, "max_failures": 1_000}
        limits = {"timeout_seconds": TIMEOUT_SECONDS, **({"resize_seconds": 3} if isinstance(settings.get("workers"), list) else {})}
        self.config: Config = training(
            folder, rows=ROWS, task=task, numbered=True, nan_row=nan_row, uri=uri, **{**common, **limits, **settings}
        )
        self._file = folder / "toy.yaml"
        self._file.write_text(yaml.safe_dump(self.config.model_dump(mode="json", by_alias=True)))
        self.job = self.start()

    def start(self) -> Job:
        variables = {**self.nodes.variables, "RAY_ADDRESS": self.nodes.address}
        self.job = Job(["jobs/train.py", str(self._file)], self.folder / "job.log", **variables)
        return self.job

    def attempts(self) -> list[Attempt]:
        return attempts(self.records)

    def wait_for(self, event: str, value: Callable[[], Any], seconds: float = RECOVERY_SECONDS) -> Any:
        """Return the value once it is true. Raises AssertionError if it takes longer, or if the job ends before."""
        deadline = time.monotonic() + seconds
        while not (result := value()):
            assert time.monotonic() < deadline, f"{event}: not within {seconds:.0f} s\n{self.job.tail()}"
            assert self.job.ended is None, f"{event}: the job ended with {self.job.ended}\n{self.job.tail()}"
            time.sleep(0.2)
        return result

    def next_attempt(self, since: float, earlier: set[str], world_size: int | None = None) -> Attempt:
        """The first attempt that has taken a step and is none of the earlier ones, by their names."""

        def attempt_with_step() -> Attempt | None:
            new = [attempt for attempt in self.attempts() if attempt.name not in earlier and since < attempt.first < float("inf")]
            return next((attempt for attempt in new if world_size in (None, attempt.world_size)), None)

        return self.wait_for("the next step", attempt_with_step)

    def worker(self, chance: random.Random) -> Any:
        return chance.choice(self.wait_for("a worker", self.nodes.workers))

    def checkpoints(self) -> list[Path]:
        """Whole ones, oldest first."""
        return sorted(path.parent for path in self.folder.glob("runs/*/checkpoints/*/record.json"))

    def finish(self, seconds: float = 300.0) -> int:
        return self.job.wait(seconds)

    def trajectory(self) -> Trajectory:
        return surviving_steps(self.attempts())


Fault = Callable[[Scene, Server, random.Random], Outcome]
"""Causes a fault, and returns when the next step is made. Raises AssertionError if that never comes."""


def run_reference(folder: Path, case: Case, epochs: int, nodes: Nodes) -> Scene:
    scene = Scene(folder, {**case.settings, "timeout_seconds": 60}, epochs, nodes, "", 0.0)
    assert scene.finish() == 0, scene.job.tail(40)
    return scene


def disturb(case: Case, faults: Mapping[str, Fault], seed: int, folder: Path, seconds: float = float("inf")) -> Case:
    """Run the case, and compare it with the same training left alone. `seconds` after its first step no more faults are caused."""
    (folder / "server").mkdir()
    with closing(Nodes()) as nodes, closing(Server(folder / "server")) as server:
        return _disturb(case, faults, seed, folder, seconds, nodes, server)


def _disturb(case: Case, faults: Mapping[str, Fault], seed: int, folder: Path, seconds: float, nodes: Nodes, server: Server) -> Case:
    chance = random.Random(f"{seed}/{case.name}")
    epochs = -(-len(case.faults) * STEPS_PER_FAULT // STEPS_PER_EPOCH) + 1
    reference = run_reference(folder / "undisturbed", case, epochs, nodes)
    passes = 4 if case.settings["strategy"] == "exact" else 1
    scene = Scene(folder / "disturbed", case.settings, epochs, nodes, server.uri, 0.03 / passes)
    try:
        scene.wait_for("the first step", lambda: any(attempt.first < float("inf") for attempt in scene.attempts()))
        end = time.monotonic() + seconds
        for name in chance.sample(case.faults, len(case.faults)):
            time.sleep(chance.uniform(0.2, 4.0))
            if scene.job.ended is not None or time.monotonic() > end:
                break
            began = time.time()
            try:
                outcome = faults[name](scene, server, chance)
            except AssertionError as error:
                outcome = Outcome(name, False, note=str(error))
            outcome.fault = name
            case.outcomes.append(outcome)
            print(f"{case.name}: {name}: {outcome.recovered}, {time.time() - began:.1f} s {outcome.note}", flush=True)
            if not outcome.recovered:
                break
        if all(outcome.recovered for outcome in case.outcomes):
            case.result = {"exit code": scene.finish(), **compare(scene, reference, server, epochs)}
    finally:
        scene.job.end()
    return case


def compare(scene: Scene, reference: Scene, server: Server, epochs: int) -> dict[str, Any]:
    """Compare with the undisturbed training, by the workers' own records and by MLflow."""
    actual, expected = scene.trajectory(), reference.trajectory()
    lost, repeated = actual.lost_and_repeated(STEPS_PER_EPOCH, BATCH)
    losses = list(zip(actual.curve(), expected.curve(), strict=False))
    runs, (reference_run,) = _runs(server.uri), _runs(reference.config.tracking.uri)
    points = _loss_steps(server.uri, runs[0]) if runs else []
    reference_points = _loss_steps(reference.config.tracking.uri, reference_run)
    return {
        "steps": len(actual.rows),
        "steps expected": epochs * STEPS_PER_EPOCH,
        "rows lost": lost,
        "rows repeated": repeated,
        "rows of every step equal": {step: sorted(rows) for step, rows in actual.rows.items()}
        == {step: sorted(rows) for step, rows in expected.rows.items()},
        "loss curve equal": len(losses) == epochs * STEPS_PER_EPOCH and all(loss == reference_loss for loss, reference_loss in losses),
        "loss curve's largest difference": max(
            (abs(loss - reference_loss) / max(abs(reference_loss), 1e-9) for loss, reference_loss in losses), default=None
        ),
        "weights equal": bool(runs) and runs[0].data.tags.get("model.digest") == reference_run.data.tags["model.digest"],
        "attempts": len(scene.attempts()),
        "steps made again, most": max(steps_lost(scene.attempts()), default=0),
        "runs": len(runs),
        "status": runs[0].info.status if runs else None,
        "points of the curve once": sorted(points) == sorted(set(points)) == sorted(reference_points),
    }


def _loss_steps(uri: str, run: Any) -> list[int]:
    return [point.step for point in MlflowClient(uri).get_metric_history(run.info.run_id, "train/loss")]


def _runs(uri: str) -> list[Any]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("toy")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def is_sound(case: Case) -> bool:
    """Whether everything is as it must be: equal to rounding with `ddp`, to the bit with `exact`."""
    result, exact = case.result, case.settings["strategy"] == "exact"
    if not result:
        return False
    has_all_rows = result["rows lost"] == result["rows repeated"] == result["exit code"] == 0 and result["rows of every step equal"]
    tracked = (result["runs"], result["status"]) == (1, "FINISHED") and result["points of the curve once"]
    equal = result["loss curve equal"] and result["weights equal"] if exact else result["loss curve's largest difference"] < 1e-3
    return bool(has_all_rows and tracked and equal)
