"""`train.balance: {leave_out: true}` on two Ray nodes, one of which is slow: the training goes on without it, to the same weights."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import ray
from mlflow import MlflowClient
from sessions import process
from trainings import open_dataset, training
from unequal import SLOW
from waiting import wait_until

from pipelines.config import Config
from pipelines.launch import ray_trainer
from pipelines.launch.training_run import train
from pipelines.monitor import worker_monitor as worker_watch
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import ATTEMPTS, RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

RAY = "from pipelines.runtime.compat.ray import set_own_address; set_own_address('127.0.0.1'); from ray.scripts.scripts import main; main()"
"""Ray's command line, which else takes 127.0.0.1, where the tests' Ray listens, for the machine's address in its network."""
CPUS = 4
"""Of a node, and of a worker: one worker fits on each node."""


def nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


@pytest.fixture
def slow_node(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A second node of the tests' Ray, and its id."""
    monkeypatch.setattr(ray_trainer, "is_own", lambda: False)  # a Ray of our own has one node
    monkeypatch.setenv(SLOW, "1")
    before, address = nodes(), ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", RAY, "start", "--block", "--disable-usage-stats"]
    command += [
        f"--address={address}",
        f"--node-ip-address={address.partition(':')[0]}",
        f"--num-cpus={CPUS}",
        "--object-store-memory=100000000",
    ]
    with (tmp_path / "node.log").open("w") as log, process(command, log, stop=signal.SIGTERM) as node:
        monkeypatch.delenv(SLOW)

        def new() -> set[str]:
            assert node.poll() is None, (tmp_path / "node.log").read_text()
            return set(nodes()) - set(before)

        yield wait_until(new, "the second node in Ray's list", say=(tmp_path / "node.log").read_text).pop()
    wait_until(lambda: len(nodes()) <= len(before), "Ray to take the second node off its list", 120)


@pytest.mark.full
def test_p5_before_a_machine_is_taken_away_the_workers_save_and_the_run_goes_on_without_it(
    slow_node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    layout = {"workers": [1, 2], "cpus_per_worker": CPUS, "balance": "equal"}
    config = training(tmp_path, rows=6_000, strategy="tests.unequal:UnequalMachines", epochs=4, **layout)
    (host,) = {node["NodeManagerHostname"] for node in ray.nodes() if node["NodeID"] == slow_node}
    taking = Thread(target=take_away, args=(slow_node, tmp_path))
    taking.start()
    result = train(config)
    taking.join()
    lines = capsys.readouterr().out
    assert f"{host} is about to be taken away: the workers save first" in lines
    (saved,) = re.findall(rf"saved after step (\d+); the run goes on without {host}, which is about to be taken away", lines)
    (folder,) = runs_in(tmp_path)
    attempts = (RunDirectory(str(folder)).get_json(ATTEMPTS) or {})["attempts"]
    assert [attempt["workers"] for attempt in attempts] == [2, 1]
    assert attempts[0]["steps"] == attempts[1]["step"] == int(saved) > 0, "no step is lost"
    assert result.model_digest == reference_digest(config, tmp_path)


def runs_in(folder: Path) -> list[Path]:
    return [file.parent for file in folder.glob("**/heartbeats")]


def take_away(node: str, folder: Path) -> None:
    """Tell Ray, once both workers take steps, that the node is about to be taken away, as a cloud does of a spot instance."""

    def both_step() -> bool:
        beats = worker_watch.read_beats(RunDirectory(str(runs_in(folder)[0]))) if runs_in(folder) else {}
        return len(beats) == 2 and min(beat.steps for beat in beats.values()) > 0

    wait_until(both_step, "both workers to take steps", 120)
    command = [sys.executable, "-c", RAY, "drain-node"]
    command += ["--address", ray.get_runtime_context().gcs_address, "--node-id", node, "--deadline-remaining-seconds", "60"]
    command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a spot instance"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.mark.full
def test_p5_a_machine_that_stays_slow_is_left_out_and_the_weights_are_the_same(
    slow_node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    layout = {"workers": [1, 2], "cpus_per_worker": CPUS, "balance": {"leave_out": True}}
    config = training(tmp_path, rows=6_000, strategy="tests.unequal:UnequalMachines", epochs=4, **layout)
    result = train(config)
    (host,) = {node["NodeManagerHostname"] for node in ray.nodes() if node["NodeID"] == slow_node}
    assert f"the run goes on without {host}, where a worker is too slow" in capsys.readouterr().out
    client = MlflowClient(config.tracking.uri)
    (run,) = client.search_runs([client.get_experiment_by_name(config.experiment).experiment_id])
    assert run.info.status == "FINISHED" and run.data.tags["machines.left_out"] == host
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")] == list(range(1, 4 * (6_000 // 64) + 1))
    assert result.model_digest == reference_digest(config, tmp_path)


def reference_digest(config: Config, folder: Path) -> str:
    """The digest of the model that one worker trains in this process."""
    version, context = open_dataset(config), WorkerContext()
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder / "undisturbed")), context, 2)
    Loop(config, version, task, strategy, checkpoints, Hooks()).run()
    return model_digest(strategy.model.state_dict())
