"""Which rows a worker computes follows from its replica; a model may be spread over the workers of one."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from groups import run_group
from torch import Tensor
from trainings import open_dataset, training

from pipelines.data.loader import shard_range
from pipelines.tasks.base import Batch
from pipelines.tasks.bind import build_task
from pipelines.tasks.details import EvaluationData
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.ddp.ddp import DataParallel
from pipelines.train.evaluate import Evaluation
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import Mesh, WorkerContext

SETTINGS: dict[str, Any] = {"shards": 8, "global_batch": 64, "epochs": 1, "checkpoint": {"every_steps": 10}}


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_a_worker_of_its_own_is_a_replica(world_size: int) -> None:
    meshes = [Mesh(WorkerContext(rank, world_size)) for rank in range(world_size)]
    assert [mesh.worker_shards(8) for mesh in meshes] == meshes[0].shards_by_replica(8)
    assert [mesh.worker_shards(8) for mesh in meshes] == [shard_range(rank, world_size, 8) for rank in range(world_size)]


def test_the_workers_of_a_replica_read_the_same_rows() -> None:
    meshes = [Mesh(WorkerContext(rank, 6), workers_per_replica=2) for rank in range(6)]
    assert [mesh.worker_shards(12) for mesh in meshes] == [range(4)] * 2 + [range(4, 8)] * 2 + [range(8, 12)] * 2
    assert [mesh.replica for mesh in meshes] == [0, 0, 1, 1, 2, 2]
    assert (meshes[0].replicas, list(meshes[0].first_ranks)) == (3, [0, 2, 4])


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_a_strategy_that_takes_each_worker_for_a_replica_says_so(tmp_path: Path, strategy: str) -> None:
    config = training(tmp_path, **SETTINGS, strategy=strategy)
    task = build_task(config.task, open_dataset(config).manifest)
    instance = create_strategy(config.train, task, WorkerContext())
    instance.mesh = Mesh(WorkerContext(1, 2), workers_per_replica=2)
    with pytest.raises(AssertionError, match="each"):
        instance._replicas() if isinstance(instance, DataParallel) else instance.step([], 0, 0.1, Flags())


class Spread(DataParallel):
    """As if no worker held the whole model: every forward pass waits for all workers."""

    def predict(self, batch: Batch) -> Tensor:
        dist.all_reduce(torch.zeros(1))
        return super().predict(batch)

    def sample(self, epoch: int) -> str:
        dist.all_reduce(torch.zeros(1))
        return super().sample(epoch)

    def state_dict(self) -> dict[str, Any]:
        dist.all_reduce(torch.zeros(1))
        return super().state_dict()

    def weights(self) -> dict[str, Tensor]:
        dist.all_reduce(torch.zeros(1))
        return super().weights()


class BreaksOff(Hooks):
    def __init__(self, evaluation: int | None) -> None:
        self._evaluations_left = evaluation

    def must_stop_evaluation(self) -> bool:
        if self._evaluations_left is not None:
            self._evaluations_left -= 1
        return self._evaluations_left == 0


def fit_on_mesh(context: WorkerContext, home: Path, folder: Path, break_off: int | None = None) -> Trained:
    config = training(home, **SETTINGS)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = Spread(config.train, task, task.model, context)
    hooks = BreaksOff(break_off if context.rank == context.world_size - 1 else None)
    actual = Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), hooks).run()
    strategy.weights()
    return actual


@pytest.mark.slow
def test_workers_with_unequal_shards_run_a_spread_model_equally_often(tmp_path: Path) -> None:
    """3 workers own 2, 3 and 3 of 8 shards; a worker that ran the model less often would leave the others waiting."""
    training(tmp_path, **SETTINGS)
    for actual in run_group(3, tmp_path / "group", fit_on_mesh, tmp_path, tmp_path / "run"):
        assert isinstance(actual, Trained) and actual.finished, actual
    for actual in run_group(3, tmp_path / "stopped", fit_on_mesh, tmp_path, tmp_path / "other", 1):
        assert isinstance(actual, Trained) and not actual.finished, actual


def evaluate_split(context: WorkerContext, home: Path, workers_per_replica: int) -> tuple[dict[str, float] | None, EvaluationData | None]:
    config = training(home, **SETTINGS)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    strategy.mesh = Mesh(context, workers_per_replica)
    evaluation = Evaluation(config.train, version, "validation", task, strategy)
    return evaluation(), evaluation.evaluation_data


@pytest.mark.slow
def test_a_replica_counts_once_in_an_evaluation(tmp_path: Path) -> None:
    metrics, details = evaluate_split(WorkerContext(), tmp_path, 1)
    assert details and details.summary["rows"] == sum(details.tables["calibration"]["rows"]) > 0
    assert run_group(4, tmp_path / "group", evaluate_split, tmp_path, 2) == [(metrics, details), *[(metrics, None)] * 3]
