"""Parameter servers on Ray: the weights of `exact`, whoever is killed; and asynchronous modes that apply every update once."""

import random
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from mlflow import MlflowClient
from test_train import history, once_at, workers
from torch.distributed.checkpoint.state_dict_loader import load
from trainings import training

from pipelines.checkpoint.run_directory import RunDirectory
from pipelines.checkpoint.store import reader
from pipelines.config import Config
from pipelines.errors import NonFiniteError
from pipelines.launch.run import Result, train
from pipelines.launch.verify import verify

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS, EPOCHS, SHARDS = 3_000, 3, 8
STEPS = EPOCHS * (ROWS // 64)


def settings(folder: Path, mode: str = "sync", **more: Any) -> Config:
    given = {"servers": 2, "mode": mode, "backups": 1}
    strategy = {"strategy": "exact"} if mode == "exact" else {"strategy": "parameter_server", "parameter_server": given}
    return training(folder, rows=ROWS, task={"dropout": 0.2}, **{"workers": 2, "epochs": EPOCHS, "clip_norm": 1.0, **strategy, **more})


def server_processes() -> list[psutil.Process]:
    """Of servers and of backups, in the order in which they were started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::ServerActor"):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return sorted(found, key=lambda process: process.create_time())


def watermarks(config: Config) -> list[int]:
    """Of the newest checkpoint."""
    newest = max(Path(config.train.storage).glob("*/checkpoints/step-*"))
    if config.train.parameter_server.mode == "sync":  # all at the step that the checkpoint is named after
        return [int(newest.name.split("-")[1])] * SHARDS
    state = {"servers": {"next_steps": torch.zeros(SHARDS, dtype=torch.int64)}}
    directory = RunDirectory(str(newest.parents[1]))
    load(state, storage_reader=reader(directory, f"checkpoints/{newest.name}"), no_dist=True)
    return state["servers"]["next_steps"].tolist()


def every_update_was_applied_once(config: Config, result: Result) -> None:
    """The rows are summed by the servers, beside the gradients that they apply."""
    assert watermarks(config) == [STEPS] * SHARDS
    assert result.rows == STEPS * 64
    assert history(config, result.run_id, "train/loss")[-1] == STEPS


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> str:
    return train(settings(tmp_path_factory.mktemp("exact"), "exact", workers=1)).model_digest


def test_synchronous_weights_are_those_of_exact(exact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = settings(tmp_path, workers=1)
    result = train(config)
    assert result.model_digest == exact
    every_update_was_applied_once(config, result)
    assert server_processes() == []
    assert verify(config, result.run_id)
    assert "identical: the losses of" in capsys.readouterr().out
    for name in ("staleness", "pull_seconds", "push_seconds", "queue"):
        assert len(history(config, result.run_id, f"servers/{name}")) == STEPS


def test_so_they_are_whoever_is_killed(exact: str, tmp_path: Path) -> None:
    config = settings(tmp_path)
    chance = random.Random(5)
    with (
        once_at(config, 20, lambda: chance.choice(server_processes()).kill()),
        once_at(config, 50, lambda: chance.choice(workers()).kill()),
        once_at(config, 90, lambda: [process.kill() for process in chance.sample(server_processes(), 2)]),
    ):
        result = train(config)
    assert result.model_digest == exact
    every_update_was_applied_once(config, result)


def test_asynchronous_updates_are_applied_once_whoever_is_killed(tmp_path: Path) -> None:
    config = settings(tmp_path, "async")
    chance = random.Random(6)
    with (
        once_at(config, 20, lambda: chance.choice(workers()).kill()),
        once_at(config, 60, lambda: chance.choice(server_processes()).kill()),
    ):
        result = train(config)
    every_update_was_applied_once(config, result)
    assert result.metrics["test/auc"] > 0.9
    stale = MlflowClient(config.tracking.uri).get_metric_history(result.run_id, "servers/most_stale")
    assert max(point.value for point in stale) >= 1


def test_without_backups_training_continues_from_the_last_checkpoint(exact: str, tmp_path: Path) -> None:
    config = settings(tmp_path, parameter_server={"servers": 2}, checkpoint={"every_steps": 20})
    with once_at(config, 50, lambda: random.choice(server_processes()).kill()):
        result = train(config)
    assert result.model_digest == exact
    every_update_was_applied_once(config, result)


def test_a_loss_that_is_not_a_number_ends_all_workers(tmp_path: Path) -> None:
    config = training(tmp_path, nan_row=7, workers=2, strategy="parameter_server", parameter_server={"mode": "async"})
    with pytest.raises(NonFiniteError, match=r"the loss is nan, from worker \d \(shard \d\)"):
        train(config)
    assert server_processes() == []
