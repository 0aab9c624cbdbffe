"""Training through Ray Train and MLflow, on a small version: one true run, through kills, interrupts and bad numbers."""

import gzip
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from chromium import GOOD, seen
from disturbing import act_at_step, act_when, workers
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from pausing import PAUSED_BEFORE, count_waiting_workers, let_go
from trainings import FEATURES, open_dataset, training
from waiting import wait_until

from pipelines import api, tracking
from pipelines.config import Config
from pipelines.errors import ConfigError, CorruptError, LockstepError, NonFiniteError, TrainingError
from pipelines.launch import worker_failures
from pipelines.launch.training_run import Result, train
from pipelines.monitor.stack_dump import describe_workers, remote_stack
from pipelines.monitor.worker_monitor import read_beats
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.train.checkpoint.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("ray_cluster")

LONG: dict[str, Any] = {"rows": 6_000, "workers": 2, "epochs": 4, "checkpoint": {"every_steps": 40}}
"""Four epochs of 93 steps: long enough to be disturbed."""
EPOCH, STRIDE = 6_000 // 64, 1


def history(config: Config, run_id: str, name: str) -> list[int]:
    return sorted(metric.step for metric in MlflowClient(config.tracking.uri).get_metric_history(run_id, name))


def latest_run(config: Config) -> Any:
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    return client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def training_run(home: Path) -> tuple[Config, Result]:
    config = training(home, workers=2, task={"slices": ["label"]}, profile={"steps": [5, 8], "ranks": [0, 1], "memory": True})
    return config, train(config)


def test_a_training_becomes_one_finished_run(training_run: tuple[Config, Result]) -> None:
    config, result = training_run
    run = latest_run(config)
    assert (run.info.run_id, run.info.status) == (result.run_id, "FINISHED")
    steps = list(range(1, 3 * (2_000 // 64) + 1))
    for name in ("train/loss", "train/grad_norm", "train/learning_rate", "train/rows_per_second", "train/data_wait_fraction"):
        assert history(config, result.run_id, name) == steps, name
    assert history(config, result.run_id, "validation/auc") == [31, 62, 93, 94], "and the best epoch's, as the final one"
    assert history(config, result.run_id, "test/auc") == [93, 94]
    logged_model = MlflowClient(config.tracking.uri).get_logged_model(result.model.removeprefix("models:/"))
    shown_with_model = {metric.key: metric.value for metric in logged_model.metrics or ()}
    final = {**result.metrics, "best_epoch": run.data.metrics["best_epoch"]}
    assert {name: shown_with_model.get(name) for name in final} == pytest.approx({name: run.data.metrics.get(name) for name in final})
    assert {name: run.data.metrics[name] for name in result.metrics} == pytest.approx(result.metrics)
    assert run.data.metrics["test/auc"] == result.metrics["test/auc"] > 0.9
    assert result.rows == 93 * 64


def test_it_files_figures_and_a_page_that_a_browser_shows(training_run: tuple[Config, Result]) -> None:
    _, result = training_run
    folder = Path(latest_run(training_run[0]).info.artifact_uri.removeprefix("file://"))
    for split in ("validation", "test"):
        names = {file.name for file in (folder / "evaluation" / split).iterdir()}
        assert names >= {
            "summary.json",
            "scores.parquet",
            "worst.parquet",
            "confusion.svg",
            "roc.svg",
            "precision_recall.svg",
            "calibration.svg",
        }
        table = pd.read_parquet(folder / "evaluation" / split / "confusion.parquet")
        right = table[table["true"] == table["predicted"]]["rows"].sum() / table["rows"].sum()
        assert right == pytest.approx(result.metrics[f"{split}/accuracy"])
    page = folder / "report.html"
    text = page.read_text()
    for phrase in (
        result.run_id,
        result.model_digest,
        "training began with 2 workers",
        "worker hours",
        "By label, test",
        "This run is finished",
    ):
        assert phrase in text
    assert page.stat().st_size < 5_000_000
    assert seen(page) == GOOD


def test_p6_its_lineage_is_in_its_tags(training_run: tuple[Config, Result]) -> None:
    config, result = training_run
    tags = latest_run(config).data.tags
    assert tags["dataset.digest"] == open_dataset(config).digest
    assert tags["strategy"] == "ddp"
    assert tags["ray.job_id"]
    assert tags["rows.left_out_of_an_epoch"] == str(2_000 % 64)
    weights = from_bytes(tracking.download_weights(config.tracking.uri, result.run_id)[0][0])
    assert tags["model.digest"] == result.model_digest == model_digest(weights)


def test_where_its_time_goes_is_in_the_curves(training_run: tuple[Config, Result]) -> None:
    config, result = training_run
    metrics = latest_run(config).data.metrics
    for phase in ("data", "forward", "backward", "exchange", "optimizer", "checkpoint"):
        mean, worst = metrics[f"system/workers/time/{phase}_seconds"], metrics[f"system/workers/worst/time/{phase}_seconds"]
        assert 0 < mean <= worst and metrics[f"system/workers/worst_rank/time/{phase}_seconds"] in (0, 1), phase
    assert metrics["system/workers/memory/peak_bytes"] > 2**27
    steps = history(config, result.run_id, "system/workers/time/forward_seconds")
    assert steps == sorted(set(steps)) and steps[-1] == 93


def test_the_steps_that_it_should_profile_are_filed(training_run: tuple[Config, Result], tmp_path: Path) -> None:
    config, result = training_run
    uri = config.tracking.uri
    folder = Path(download_artifacts(run_id=result.run_id, artifact_path="profile", tracking_uri=uri, dst_path=str(tmp_path)))
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((folder / f"rank-{rank}.trace.json.gz").read_bytes()))
        recorded = {event.get("name") for event in trace["traceEvents"]}
        assert {name for name in recorded if re.fullmatch(r"step \d+", str(name))} == {"step 5", "step 6", "step 7", "step 8"}
        dearest = json.loads((folder / f"rank-{rank}.operators.json").read_text())
        assert any(row["operator"].startswith("aten::") and row["calls"] >= 4 for row in dearest)
        assert "Self CPU" in (folder / f"rank-{rank}.operators.txt").read_text()
        peaks = json.loads((folder / f"rank-{rank}.memory.json").read_text())["peak_resident_bytes"]
        assert min(peaks[phase] for phase in ("forward", "backward", "optimizer")) > 2**27


def test_its_model_takes_raw_rows(training_run: tuple[Config, Result]) -> None:
    config, result = training_run
    mlflow.set_tracking_uri(config.tracking.uri)
    rows = pd.DataFrame({f"x{number}": [1.5, 1.5] for number in range(FEATURES)} | {"x1": [1.5, -1.5]}).astype("float32")
    assert list(mlflow.pyfunc.load_model(result.model).predict(rows)["prediction"]) == ["true", "false"]


@pytest.mark.full
def test_a_run_starts_from_an_earlier_one_s_weights(
    home: Path, training_run: tuple[Config, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    _, earlier = training_run
    config = training(home, workers=1, init_from=earlier.run_id, epochs=1, lr=1e-9, optimizer="sgd", profile={"steps": [500, 600]})
    result = train(config)
    assert result.metrics["test/auc"] == pytest.approx(earlier.metrics["test/auc"], abs=1e-6)
    output = capsys.readouterr().out
    assert f"run {result.run_id} of experiment toy" in output
    assert "train.profile: there is no profile of worker 0, which did not exist or did not come to steps 500 to 600" in output
    page = api.report(config.tracking.uri, result.run_id)
    assert f"test of its parent {earlier.run_id[:8]}" in page
    compared = api.report(config.tracking.uri, earlier.run_id, result.run_id)
    assert "train.init_from" in compared and "A is run" in compared and "The configs are equal" not in compared


@pytest.mark.full
def test_a_model_that_was_spread_over_workers_is_logged_whole(home: Path, training_run: tuple[Config, Result]) -> None:
    config, by_ddp = training_run
    spread = type(config.train).model_validate({**config.train.model_dump(), "strategy": "sharded"})
    result = train(config.model_copy(update={"train": spread}))
    assert result.metrics["validation/auc"] == pytest.approx(by_ddp.metrics["validation/auc"], rel=1e-3)
    rows = pd.DataFrame({f"x{number}": [1.5, 1.5] for number in range(FEATURES)} | {"x1": [1.5, -1.5]}).astype("float32")
    assert list(mlflow.pyfunc.load_model(result.model).predict(rows)["prediction"]) == ["true", "false"]
    with pytest.raises(ConfigError, match=r"strategy.activation_checkpointing is full, but task Tabular declares no blocks"):
        train(training(home, strategy={"kind": "sharded", "activation_checkpointing": "full"}))


def test_p8_a_killed_worker_costs_no_point_and_makes_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = training(tmp_path, strategy="tests.pausing:PausingSettings", **LONG)
    diagnostics: list[str] = []

    def kill() -> None:
        """While both workers wait before a step, some steps after the last checkpoint: the page can tell how many are lost."""
        wait_until(
            lambda: history(config, latest_run(config).info.run_id, "train/loss")[-1:] == [PAUSED_BEFORE],
            f"the loss of step {PAUSED_BEFORE} in MLflow",
        )
        (folder,) = Path(config.train.storage).glob("*/")
        assert max(int(name.name.split("-")[1]) for name in (folder / "checkpoints").glob("step-*")) < PAUSED_BEFORE
        diagnostics.append("\n".join(describe_workers(RunDirectory(str(folder)))))
        with monkeypatch.context() as patched:
            patched.setenv("RAY_ADDRESS", "auto")
            diagnostics.append(remote_stack(read_beats(RunDirectory(str(folder)))[0]))
        workers()[0].kill()
        let_go(config.train.storage)

    with act_when(lambda: count_waiting_workers(config.train.storage) == 2, f"two workers that wait before step {PAUSED_BEFORE}", kill):
        result = train(config)
    for rank in (0, 1):  # whose last beat may be from before the first step
        assert re.search(rf"worker {rank}: process \d+ on \S+, for [\d.e-]+ s \w+", diagnostics[0]), diagnostics[0]
    assert diagnostics[0].count("pipelines/train/loop.py") >= 2 or "no stack: py-spy may not read the process" in diagnostics[0], (
        diagnostics[0]
    )
    assert "pipelines/train/loop.py" in diagnostics[1] or "no stack: py-spy may not read the process" in diagnostics[1], diagnostics[1]
    run = latest_run(config)
    assert (run.info.run_id, run.info.status) == (result.run_id, "FINISHED")
    assert history(config, result.run_id, "train/loss") == list(range(STRIDE, 4 * EPOCH + 1, STRIDE))
    assert history(config, result.run_id, "validation/auc") == [EPOCH, 2 * EPOCH, 3 * EPOCH, 4 * EPOCH, 4 * EPOCH + 1]
    assert result.rows == 4 * EPOCH * 64
    assert len(MlflowClient(config.tracking.uri).search_runs([run.info.experiment_id])) == 1
    assert re.search(r"restarted at step \d+, \d+ steps back", api.report(config.tracking.uri, result.run_id))


def test_p8_an_interrupted_run_is_killed_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = training(tmp_path, **LONG)
    with act_at_step(config, 60, lambda: os.kill(os.getpid(), signal.SIGTERM)), pytest.raises(SystemExit) as exit_info:
        train(config)
    assert exit_info.value.code == 128 + signal.SIGTERM
    interrupted = latest_run(config)
    assert interrupted.info.status == "KILLED"
    assert "run the same command to resume" in capsys.readouterr().out
    page = api.report(config.tracking.uri, interrupted.info.run_id)
    assert "This run is KILLED" in page and "train/rows_per_second" in page and "training began with 2 workers" in page
    result = train(config.model_copy(update={"train": config.train.model_copy(update={"workers": 1})}))
    assert result.run_id == interrupted.info.run_id
    assert latest_run(config).info.status == "FINISHED"
    assert "resized from 2 to 1 worker" in api.report(config.tracking.uri, result.run_id)
    assert history(config, result.run_id, "train/loss") == list(range(STRIDE, 4 * EPOCH + 1, STRIDE))
    assert result.rows == 4 * EPOCH * 64


@pytest.mark.full
def test_p8_the_same_command_goes_on_whatever_ended_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(workers: int = 1, **changes: Any) -> Result:
        return train(training(tmp_path, **{**LONG, "workers": workers, "max_failures": 0, **changes}))

    def kill() -> None:
        workers()[0].kill()

    def run_and_fail(message: str, **changes: Any) -> None:
        with pytest.raises(LockstepError, match=message):
            command(**changes)
        assert latest_run(config).info.status == "FAILED"

    config = training(tmp_path, **LONG)
    with monkeypatch.context() as patched:
        patched.setattr(worker_failures, "STARTS", 0)
        patched.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "1")
        run_and_fail("Ray has no room for the workers: .*; lower train.workers or add machines", workers=5)
    with act_at_step(config, 60, kill):
        run_and_fail("workers died more often than train.max_failures allows .*; run the same command to resume from the last checkpoint")
    run_id = command().run_id
    assert (latest_run(config).info.run_id, latest_run(config).info.status) == (run_id, "FINISHED")
    assert len(MlflowClient(config.tracking.uri).search_runs([latest_run(config).info.experiment_id])) == 1
    assert history(config, run_id, "train/loss") == list(range(STRIDE, 4 * EPOCH + 1, STRIDE))


def test_a_loss_that_is_not_a_number_fails_the_run_at_once(tmp_path: Path) -> None:
    config = training(tmp_path, workers=1, lr=1e30, optimizer="sgd", checkpoint={"every_steps": 1})
    with pytest.raises(NonFiniteError, match=r"step \d+: the .*the last complete checkpoint is kept"):
        train(config)
    assert latest_run(config).info.status == "FAILED"
    assert "This run is FAILED" in api.report(config.tracking.uri, latest_run(config).info.run_id)
    assert list(Path(config.train.storage).glob("*/checkpoints/step-*/record.json"))


@pytest.mark.full
def test_an_altered_part_fails_the_run_and_is_named(tmp_path: Path) -> None:
    config = training(tmp_path, workers=1)
    part = next((tmp_path / "data").glob("*/data-a/split=train/*.parquet"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 0xFF
    part.write_bytes(content)
    with pytest.raises(CorruptError, match=part.name):
        train(config)
    assert latest_run(config).info.status == "FAILED"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"global_batch": 4_096},
            "2000 rows do not fill one global batch of 4096; lower train.global_batch, or set train.remainder to keep",
        ),
        ({"use_gpu": True, "workers": 2}, "train.use_gpu is true, but the Ray cluster has 0 GPUs for 2 workers"),
    ],
)
def test_numbers_that_cannot_be_are_refused_before_any_worker_starts(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    config = training(tmp_path, **settings)
    with pytest.raises(TrainingError, match=message):
        train(config)
    assert not Path(config.train.storage).exists()
    assert MlflowClient(config.tracking.uri).get_experiment_by_name(config.experiment) is None
