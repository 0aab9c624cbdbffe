"""Whole trainings on a GPU under Ray Train, with MLflow: as they are recorded, killed, stopped and repeated; and their models."""

import gzip
import json
import os
import signal
from collections.abc import Iterator
from operator import eq
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from disturbing import act_when, workers
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from pausing import count_waiting_workers, let_go
from trainings import FEATURES, training

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.errors import TrainingError
from pipelines.launch.cluster import cluster
from pipelines.launch.training_run import Result, train
from pipelines.launch.verify import verify
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.step_statistics import GPU_STEPS_PER_READING

LONG: dict[str, Any] = {"rows": 6_000, "workers": 1, "use_gpu": True, "epochs": 3, "checkpoint": {"every_steps": 40}}
STEPS = 3 * (6_000 // 64)
EXACT: dict[str, Any] = {**LONG, "strategy": "exact", "task": {"dropout": 0.2}}


@pytest.fixture(scope="module", autouse=True)
def ray_with_gpus() -> Iterator[None]:
    """The Ray that a training starts, for all of them."""
    with cluster(Train()):
        yield


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Result]:
    config = training(tmp_path_factory.mktemp("exact"), **EXACT, profile={"steps": [5, 8], "memory": True})
    return config, train(config)


def assert_no_point_is_lost(config: Config, result: Result) -> None:
    """On a GPU, a point stands for the steps between two readings."""
    steps = sorted(point.step for point in MlflowClient(config.tracking.uri).get_metric_history(result.run_id, "train/loss"))
    assert steps == sorted(set(steps)), "a point is logged once"
    assert set(range(GPU_STEPS_PER_READING, STEPS, GPU_STEPS_PER_READING)) | {STEPS} <= set(steps)


def test_a_run_says_what_it_used(exact: tuple[Config, Result]) -> None:
    config, result = exact
    metrics = MlflowClient(config.tracking.uri).get_run(result.run_id).data.metrics
    assert_no_point_is_lost(config, result)
    assert metrics["test/auc"] > 0.9
    for phase in ("data", "forward", "backward", "exchange", "optimizer", "checkpoint"):
        assert metrics[f"system/workers/time/{phase}_seconds"] >= 0, phase
    assert metrics["system/workers/time/forward_seconds"] > 0
    assert 0 < metrics["system/workers/memory/peak_bytes"] < 2**30, "of the GPU, where this model is small"
    (folder,) = Path(config.train.storage).glob("toy-*/")
    assert torch.cuda.get_device_name(0) in read_digest_log(RunDirectory(str(folder))).machine


def test_the_profile_holds_kernels_and_the_memory_of_the_gpu(exact: tuple[Config, Result], tmp_path: Path) -> None:
    config, result = exact
    folder = Path(
        download_artifacts(run_id=result.run_id, artifact_path="profile", tracking_uri=config.tracking.uri, dst_path=str(tmp_path))
    )
    events = json.loads(gzip.decompress((folder / "rank-0.trace.json.gz").read_bytes()))["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in events)
    assert json.loads((folder / "rank-0.operators.json").read_text())
    assert (folder / "rank-0.memory.pickle").stat().st_size > 1_000


def test_p5_a_killed_run_has_the_same_bits(exact: tuple[Config, Result], tmp_path: Path) -> None:
    config = training(tmp_path, **{**EXACT, "strategy": "tests.pausing:PausingExactSettings"})

    def kill() -> None:
        workers()[0].kill()
        let_go(config.train.storage)

    with act_when(lambda: count_waiting_workers(config.train.storage) == 1, "a worker that waits", kill):
        result = train(config)
    assert result.model_digest == exact[1].model_digest
    assert_no_point_is_lost(config, result)


def test_p8_a_stopped_run_goes_on_with_the_same_bits(exact: tuple[Config, Result], tmp_path: Path) -> None:
    config = training(tmp_path, **{**EXACT, "strategy": "tests.pausing:PausingExactSettings"})

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        let_go(config.train.storage)

    with act_when(lambda: count_waiting_workers(config.train.storage) == 1, "a worker that waits", stop), pytest.raises(SystemExit):
        train(config)
    assert train(config).model_digest == exact[1].model_digest


def test_p5_a_run_is_verified(exact: tuple[Config, Result], capsys: pytest.CaptureFixture[str]) -> None:
    config, result = exact
    assert verify(config, result.run_id), capsys.readouterr().out


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "auto"},
        {"precision": "fp16", "compile": True},
        {"precision": "bf16", "strategy": "sharded"},
        {"strategy": {"kind": "local_sgd", "replicas": 1, "inner_steps": 10}},
        {"strategy": {"kind": "parameter_server", "servers": 1, "mode": "sync"}, "optimizer": "sgd", "lr": 0.3},
    ],
    ids=lambda settings: " ".join(str(value.get("kind") if isinstance(value, dict) else value) for value in settings.values()),
)
def test_every_strategy_reaches_what_it_reaches_on_the_cpu(settings: dict[str, Any], tmp_path: Path) -> None:
    for folder in ("gpu", "cpu"):
        (tmp_path / folder).mkdir()
    on_gpu = train(training(tmp_path / "gpu", **{**LONG, **settings}))
    on_cpu = train(training(tmp_path / "cpu", **{**LONG, **settings, "precision": "fp32", "compile": False, "use_gpu": False}))
    assert on_gpu.metrics["test/auc"] == pytest.approx(on_cpu.metrics["test/auc"], abs=0.02)
    assert on_gpu.rows == on_cpu.rows


def test_its_model_takes_raw_rows(exact: tuple[Config, Result]) -> None:
    config, result = exact
    mlflow.set_tracking_uri(config.tracking.uri)
    rows = pd.DataFrame(
        np.random.default_rng(0).standard_normal((100, FEATURES)).astype("float32"), columns=[f"x{n}" for n in range(FEATURES)]
    )
    predicted = mlflow.pyfunc.load_model(result.model).predict(rows)["prediction"]
    right = [str(bool(row.x0 * row.x1 + row.x2 / 2 > 0)).lower() for row in rows.itertuples()]
    assert sum(map(eq, predicted, right)) > 90


def test_more_workers_than_gpus_are_refused(tmp_path: Path) -> None:
    gpus = torch.cuda.device_count()
    with pytest.raises(TrainingError, match=rf"train.use_gpu is true, but the Ray cluster has {gpus} GPUs for {gpus + 1} workers, .*lower"):
        train(training(tmp_path, **{**LONG, "workers": gpus + 1}))
