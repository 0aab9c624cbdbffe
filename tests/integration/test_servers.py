"""Parameter servers on Ray: the weights of `exact`, whoever is killed; and asynchronous modes that apply every update once."""

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch
from disturbing import act_at_step, workers
from mlflow import MlflowClient
from test_train import history, latest_run
from torch.distributed.checkpoint.state_dict_loader import load
from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.launch.training_run import Result, train
from pipelines.launch.verify import verify
from pipelines.strategies.parameter_server.messages import Plan
from pipelines.strategies.parameter_server.parameter_server import ParameterServerStrategy
from pipelines.strategies.parameter_server.server import Server
from pipelines.strategies.parameter_server.server_actors import Servers
from pipelines.strategies.parameter_server.worker_loop import Streams
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.dcp_storage import DcpReader
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, train_order
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS, EPOCHS, SHARDS = 3_000, 3, 8
STEPS = EPOCHS * (ROWS // 64)


def settings(folder: Path, mode: str = "sync", **more: Any) -> Config:
    servers = {"kind": "parameter_server", "servers": 2, "mode": mode, "backups": 1}
    strategy = {"strategy": "exact" if mode == "exact" else servers}
    return training(folder, rows=ROWS, task={"dropout": 0.2}, **{"workers": 2, "epochs": EPOCHS, "clip_norm": 1.0, **strategy, **more})


def server_processes() -> list[psutil.Process]:
    """Of servers and of backups, in the order in which they were started."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::ServerActor"):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return sorted(processes, key=lambda process: process.create_time())


def watermarks(config: Config) -> list[int]:
    """Of the newest checkpoint."""
    newest = max(Path(config.train.storage).glob("*/checkpoints/step-*"))
    if config.train.strategy.mode == "sync":  # all at the step that the checkpoint is named after
        return [int(newest.name.split("-")[1])] * SHARDS
    state = {"servers": {"next_steps": torch.zeros(SHARDS, dtype=torch.int64)}}
    directory = RunDirectory(str(newest.parents[1]))
    load(state, storage_reader=DcpReader(directory, f"checkpoints/{newest.name}"), no_dist=True)
    return state["servers"]["next_steps"].tolist()


def check_updates_applied_once(config: Config, result: Result) -> None:
    """The rows are summed by the servers, beside the gradients that they apply."""
    assert watermarks(config) == [STEPS] * SHARDS
    assert result.rows == STEPS * 64
    assert history(config, result.run_id, "train/loss")[-1] == STEPS


@pytest.mark.full
def test_synchronous_weights_are_those_of_exact_whoever_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server, a worker, and last all servers with their backups, whereupon training continues from the last checkpoint."""
    config = settings(tmp_path, checkpoint={"every_steps": 20})
    chance = random.Random(5)
    with (
        act_at_step(config, 20, lambda: chance.choice(server_processes()).kill()),
        act_at_step(config, 50, lambda: chance.choice(workers()).kill()),
        act_at_step(config, 90, lambda: [process.kill() for process in server_processes()]),
    ):
        result = train(config)
    check_updates_applied_once(config, result)
    for name in ("staleness", "pull_seconds", "push_seconds", "queue"):
        assert history(config, result.run_id, f"servers/{name}")[-1] == STEPS
    assert verify(config, result.run_id)  # it trains with `exact`
    output = capsys.readouterr().out
    assert f"identical: the losses of {STEPS} steps" in output and result.model_digest in output


@pytest.mark.full
def test_asynchronous_updates_are_applied_once_whoever_is_killed_stopped_or_interrupted(tmp_path: Path) -> None:
    config = settings(tmp_path, "async")
    chance = random.Random(6)

    def suspend_worker() -> None:
        """For longer than its lease."""
        process = chance.choice(workers())
        process.suspend()
        time.sleep(3.0)
        process.resume()

    with (
        act_at_step(config, 20, lambda: chance.choice(workers()).kill()),
        act_at_step(config, 40, lambda: chance.choice(server_processes()).kill()),
        act_at_step(config, 70, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        pytest.raises(SystemExit) as exit_info,
    ):
        train(config)
    assert exit_info.value.code == 128 + signal.SIGTERM
    assert latest_run(config).info.status == "KILLED"
    assert 70 * SHARDS <= sum(watermarks(config)) < STEPS * SHARDS
    with act_at_step(config, 90, suspend_worker):
        result = train(config)
    assert result.run_id == latest_run(config).info.run_id and latest_run(config).info.status == "FINISHED"
    check_updates_applied_once(config, result)
    assert result.metrics["test/auc"] > 0.9
    stale = MlflowClient(config.tracking.uri).get_metric_history(result.run_id, "servers/most_stale")
    assert max(point.value for point in stale) >= 1


@pytest.mark.full
def test_a_loss_that_is_not_a_number_ends_all_workers_and_servers(tmp_path: Path) -> None:
    config = training(tmp_path, rows=640, nan_row=7, workers=2, strategy={"kind": "parameter_server", "mode": "async"})
    with pytest.raises(NonFiniteError, match=r"the loss is nan, from worker \d \(shard \d\)"):
        train(config)
    psutil.wait_procs(server_processes())  # Ray has killed them, but does not wait


@pytest.mark.full
def test_the_work_of_a_stopped_worker_is_done_by_another_and_applied_once(tmp_path: Path) -> None:
    """Worker 0 takes a microbatch and stops. Worker 1 need not wait for it, and computes it last; then worker 0 pushes its own."""
    config = settings(tmp_path, "async")
    version, end = open_dataset(config), 2
    strategy = create_strategy(config.train, build_task(config.task, version.manifest), WorkerContext())
    assert isinstance(strategy, ParameterServerStrategy)
    streams = Streams(version, "train", train_order(config), range(SHARDS), prefetch_bytes=2**20)
    plan = Plan(config.train, STEPS, STEPS, STEPS, strategy.layouts)
    with ParameterServerStrategy.actors(config.train) as actors, closing(streams):
        stopped, other = Servers(actors, 60.0), Servers(actors, 60.0)
        stopped.run = other.run = "run"
        other.load(strategy.contents("run", plan))

        def push(servers: Servers, shard: int, step: int) -> None:
            servers.push(strategy.updates(streams.take(shard, step), shard, step, [0, 0], plan))

        first_turn = stopped.take(0, end)
        assert first_turn is not None
        turns = []
        while (turn := other.take(1, end)) is not None:
            push(other, *turn)
            turns.append(turn)
        assert turns[-1] == first_turn and len(turns) == end * SHARDS
        push(stopped, *first_turn)
        assert other.positions() == ([end] * SHARDS, [end * SHARDS] * 2)
        assert stopped.take(0, end) is None


class Stops(Hooks):
    def must_stop_training(self) -> bool:
        return True


@pytest.mark.full
def test_an_update_that_a_dead_worker_sent_to_one_server_is_completed_before_anything_is_saved(tmp_path: Path) -> None:
    config = settings(tmp_path, "async")
    version, context = open_dataset(config), WorkerContext()
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    assert isinstance(strategy, ParameterServerStrategy)
    with ParameterServerStrategy.actors(config.train) as actors:
        directory = RunDirectory(str(tmp_path / "run"))
        strategy.connect(actors)
        loop = Loop(config, version, task, strategy, Checkpoints(directory, context, 1), Stops())
        servers, plan = Servers(actors, 60.0), Plan(config.train, STEPS, STEPS // EPOCHS, STEPS, strategy.layouts)
        servers.run = "run"
        servers.load(strategy.contents("run", plan))
        streams = Streams(version, "train", train_order(config), range(SHARDS), prefetch_bytes=2**20)
        with closing(streams):
            for shard, step in ((3, 0), (3, 1), (5, 1)):
                _, second = strategy.updates(streams.take(shard, step), shard, step, [0, 0], plan)
                ray.get(actors[1].command.remote("run", Server.push, second))
        with pytest.raises(TrainingError, match="a parameter server lacks an update that another one has"):
            strategy.collect(servers.contents())
        assert not loop.run().finished
        assert {tuple(part.watermarks.next_steps) for part in servers.contents()} == {(0, 0, 0, 2, 0, 2, 0, 0)}
        state = {"servers": {"next_steps": torch.zeros(SHARDS, dtype=torch.int64)}}
        (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
        load(state, storage_reader=DcpReader(directory, f"checkpoints/{saved.name}"), no_dist=True)
        assert state["servers"]["next_steps"].tolist() == [0, 0, 0, 2, 0, 2, 0, 0]


class Dies(Hooks):
    """A worker that dies at a step; None for never. It is an error to save for ever."""

    def __init__(self, at: int | None) -> None:
        self._at, self._saves = at, 0

    def step(self, number: int) -> None:
        if number == self._at:
            raise TrainingError("died")

    def report_checkpoint(self, step: int, path: str) -> None:
        self._saves += 1
        assert self._saves < 20, "the loop saves the same step again and again"


@pytest.mark.parametrize("mode", [pytest.param("sync", marks=pytest.mark.full), "async"])
def test_servers_go_back_to_an_earlier_checkpoint_if_the_newest_is_damaged(mode: str, tmp_path: Path) -> None:
    """A worker dies in the third epoch, and the checkpoint of the second one's end is damaged, whose steps the servers have forgotten."""
    per_epoch, strategy_settings = 3, {"kind": "parameter_server", "servers": 2, "mode": mode}
    config = training(tmp_path, rows=200, strategy=strategy_settings, epochs=EPOCHS)
    version, context, directory = open_dataset(config), WorkerContext(), RunDirectory(str(tmp_path / "run"))
    task = build_task(config.task, version.manifest)

    def create_loop(actors: Any, hooks: Hooks) -> Loop:
        strategy = create_strategy(config.train, task, context)
        assert isinstance(strategy, ParameterServerStrategy)
        strategy.connect(actors)
        return Loop(config, version, task, strategy, Checkpoints(directory, context, 2), hooks)

    with ParameterServerStrategy.actors(config.train) as actors:
        with pytest.raises(TrainingError, match="died"):
            create_loop(actors, Dies(2 * per_epoch + 1)).run()
        newest = max((tmp_path / "run" / "checkpoints").iterdir())
        assert newest.name.startswith(f"step-{2 * per_epoch:09d}")
        for part in newest.glob("*.distcp"):
            part.write_bytes(b"damaged")
        trained = create_loop(actors, Dies(None)).run()
    assert (trained.finished, trained.steps, trained.rows) == (True, EPOCHS * per_epoch, EPOCHS * per_epoch * 64)
