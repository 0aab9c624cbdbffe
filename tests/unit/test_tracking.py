"""Tracking, on a real SQLite store and a real server: one true run, each point once, through outages and restarts."""

import ast
import json
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from loopback import free_port
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.server import app
from mlflow.utils.validation import _validate_tag_name
from sqlalchemy import event
from sqlalchemy.orm import Session
from stores import new_store
from versions import write_version
from waiting import wait_until
from werkzeug.serving import make_server

from pipelines import api, tracking
from pipelines.config import Config, parse
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import Version
from pipelines.errors import TrackingError
from pipelines.launch import training_watch
from pipelines.launch.training_run import Result
from pipelines.notebook.fitted_model import FittedModel
from pipelines.runtime.interrupts import handle_signals
from pipelines.tracking import run_heartbeat
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.descriptions import experiment_page
from pipelines.tracking.history import history as recorded_history
from pipelines.tracking.history import read_training
from pipelines.tracking.params_and_tags import key, training_settings
from pipelines.tracking.run_heartbeat import DEAD_SECONDS, HEARTBEAT
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import FOLDER

VALUES: dict[str, Any] = {
    "name": "t",
    "source": {"tables": {"a": {"format": "parquet", "path": "a"}}},
    "dataset": {"path": "data", "features": {"x": "identity"}, "target": {"label": "binary"}},
    "task": {"kind": "tabular"},
}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    part = {"x": np.zeros((10, 2), "float32"), "label": np.zeros(10, "uint8")}
    return write_version(tmp_path_factory.mktemp("data"), {"train": [part]}, cardinality={"label": 2})


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("mlflow"))


def config(uri: str, experiment: str, **train: Any) -> Config:
    return parse({**VALUES, "tracking": {"uri": uri, "experiment": experiment}, "train": train}, "test")


def history(uri: str, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in MlflowClient(uri).get_metric_history(run_id, key)]


def begin(uri: str, version: Version, experiment: str, **train: Any) -> tracking.TrainingRun:
    return tracking.open_training(config(uri, experiment, **train), version, {"ray.job_id": "07"})


def read_config(uri: str, run_id: str) -> str:
    return Path(MlflowClient(uri).download_artifacts(run_id, "config.json")).read_text()


def let_process_die(run: tracking.TrainingRun) -> None:
    """The heartbeat of a process that was killed: its number belongs to nobody."""
    run.tag({HEARTBEAT: json.dumps({"time": time.time(), "host": socket.gethostname(), "process": 2**22 + 1})})


def test_p6_a_run_names_its_dataset_and_its_config(uri: str, version: Version) -> None:
    run = begin(uri, version, "names", lr=0.5)
    stored_run = MlflowClient(uri).get_run(run.run_id)
    assert stored_run.data.tags["dataset.digest"] == version.digest
    assert stored_run.data.tags["dataset.version"] == version.manifest.version
    assert (stored_run.data.tags["strategy"], stored_run.data.tags["ray.job_id"]) == ("ddp", "07")
    assert stored_run.data.params["train.lr"] == "0.5"
    usual = {"train.strategy.kind", "train.optimizer", "train.lr", "train.global_batch", "train.epochs", "train.seed", "train.shards"}
    assert set(stored_run.data.params) == {"task.kind", *usual}  # config.json has all others
    assert stored_run.inputs.dataset_inputs[0].dataset.digest == version.digest[:32]
    files = {file.path for file in MlflowClient(uri).list_artifacts(run.run_id)}
    assert files == {"config.json", "manifest.json", "profile.json"}
    assert stored_run.info.artifact_uri.startswith(Path(uri.removeprefix("sqlite:///")).parent.as_uri())


def test_a_run_of_trees_records_no_setting_of_networks() -> None:
    trees = parse({**VALUES, "task": {"kind": "trees"}, "train": {"init_from": ""}}, "test")
    recorded = training_settings(trees)
    assert {"train.strategy.kind", "train.epochs", "train.seed", "train.shards"} < recorded.keys()
    assert not {"train.optimizer", "train.global_batch"} & recorded.keys() and "" not in recorded.values()
    manifest = Manifest(name="t", version="0" * 12, digest="0" * 64, attempt="a", encoders={}, splits={})
    trained = {"best_epoch": 1, "epochs": 2, "steps": 50, "rows": 10, "seconds": 1.0}
    text = tracking.describe_training(trees, manifest, "test auc 0.9", trained, "page")
    assert "\ntrees, boosting, lr 0.05  \n50 rounds in" in text


@pytest.mark.parametrize("name", ["encoder/", "/a//b", "./a", "a/../b", "/", "größe", "a@b", "a:b c", "..a", "...", ".a"])
def test_a_key_is_one_that_mlflow_takes(name: str) -> None:
    _validate_tag_name(key(name))


def test_a_page_is_a_file_also_where_its_folders_have_blanks(version: Version, tmp_path: Path) -> None:
    (tmp_path / "mein Büro").mkdir()
    uri = new_store(tmp_path / "mein Büro")
    run = begin(uri, version, "first try")
    model = FittedModel(config(uri, "first try"), version.manifest, Result(run.run_id, "", "", {}, 0, 0.0))
    assert Path(model.page).with_name("config.json").exists()


def test_a_machine_that_gets_another_name_is_not_another(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {HEARTBEAT: run_heartbeat.heartbeat()}
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop.elsewhere")
    assert run_heartbeat.is_alive(tags) and not run_heartbeat.is_of_another(tags)


def test_what_people_see_of_a_run(uri: str, version: Version) -> None:
    run = begin(uri, version, "seen", lr=0.003)
    stored_run = MlflowClient(uri).get_run(run.run_id)
    assert re.fullmatch(r"ddp lr=0.003 · t · \d{4}-\d\d-\d\d \d\d:\d\d", stored_run.info.run_name)
    listed = {name for name in stored_run.data.tags if not name.startswith("mlflow.")}
    assert listed == {"dataset.digest", "dataset.run_id", "dataset.version", "git.commit", "ray.job_id", "spark.application_id", "strategy"}
    values = {**VALUES, "tracking": {"uri": uri, "experiment": "seen", "run_name": "the second try"}}
    named = tracking.open_training(parse(values, "test"), version, {})
    assert MlflowClient(uri).get_run(named.run_id).info.run_name == "the second try"
    run.describe("**test auc 0.9**")
    assert MlflowClient(uri).get_run(run.run_id).data.tags["mlflow.note.content"] == "**test auc 0.9**"
    page = experiment_page(uri, stored_run.info.experiment_id)
    assert tracking.browse_line(config(uri, "seen")) == f"browse    {page}"
    assert page == f"make ui, then http://127.0.0.1:5000/#/experiments/{stored_run.info.experiment_id}?workflowType=machine_learning"
    assert experiment_page("https://mlflow.example/", "7") == "https://mlflow.example/#/experiments/7?workflowType=machine_learning"
    assert tracking.browse_line(config("http://127.0.0.1:9", "seen")) == ""


def test_times_and_memory_are_apart_from_the_metrics_of_the_model(uri: str, version: Version) -> None:
    run = begin(uri, version, "apart")
    sender = tracking.Sender(uri, run.run_id, every_seconds=0.05)
    logged = {"train/loss": 1.0, "time/data_seconds": 0.5, "time/data_seconds_worst": 0.7, "time/data_seconds_worst_rank": 1.0}
    sender.log(1, {**logged, "memory/peak_bytes": 2.0})
    assert sender.close(30) == []
    stored = set(MlflowClient(uri).get_run(run.run_id).data.metrics)
    of_one = {f"system/workers/{kind}/time/data_seconds" for kind in ("worst", "worst_rank")}
    assert stored == {"train/loss", "system/workers/time/data_seconds", *of_one, "system/workers/memory/peak_bytes"}
    assert set(recorded_history(uri, run.run_id).curves) == {*logged, "memory/peak_bytes"}


def test_each_point_is_there_once(uri: str, version: Version) -> None:
    run = begin(uri, version, "once")
    sender = tracking.Sender(uri, run.run_id, every_seconds=0.05)
    for step in range(1, 1_501):
        sender.log(step, {"train/loss": 1 / step, "train/learning_rate": 0.1})
    assert sender.close(30) == []
    assert history(uri, run.run_id, "train/loss") == [(step, pytest.approx(1 / step)) for step in range(1, 1_501)]


def test_p8_after_a_resume_no_point_comes_twice_and_none_is_missing(uri: str, version: Version) -> None:
    run = begin(uri, version, "resume")
    first = tracking.Sender(uri, run.run_id, every_seconds=0.05)
    for step in range(1, 8):
        first.log(step, {"train/loss": float(step)})
    assert first.close(30) == []
    # A checkpoint at step 5 kept step 5 as unsent; then the run goes on from there, with other values and stamps.
    second = tracking.Sender(uri, run.run_id, every_seconds=60)
    second.resend([[123, 5, {"train/loss": 5.0, "validation/auc": 0.5}]])
    for step in range(6, 10):
        second.log(step, {"train/loss": step + 0.25})
    assert [step for _, step, _ in second.unsent()] == [5, 6, 7, 8, 9]
    assert second.close(30) == []
    assert history(uri, run.run_id, "train/loss") == [*((step, float(step)) for step in range(1, 8)), (8, 8.25), (9, 9.25)]
    assert history(uri, run.run_id, "validation/auc") == [(5, 0.5)]


def test_p8_runs_are_sorted_by_their_best_epochs_and_the_curves_stay(uri: str, version: Version) -> None:
    validation = {"early": [0.5, 0.9, 0.6], "late": [0.6, 0.7, 0.8]}
    runs = {name: begin(uri, version, "sorted", seed=seed) for seed, name in enumerate(validation)}
    for name, values in validation.items():
        for step, value in enumerate(values, 1):
            runs[name].send([[step, step, {"validation/auc": value, "validation/epoch": float(step)}]])
        best = max(values)
        for _ in range(2):  # the second command is that after a driver that was killed before it logged the model
            runs[name].send([tracking.final_point(3, values.index(best) + 1, {"validation/auc": best})])
        assert history(uri, runs[name].run_id, "validation/auc") == [*enumerate(values, 1), (tracking.final_step(3), best)]
        curves = recorded_history(uri, runs[name].run_id).curves
        assert [point.value for point in curves["validation/auc"]] == values and "best_epoch" not in curves
    client = MlflowClient(uri)
    experiment = client.get_run(runs["early"].run_id).info.experiment_id
    sorted_runs = client.search_runs([experiment], order_by=["metrics.`validation/auc` DESC"])
    assert [run.info.run_id for run in sorted_runs] == [runs["early"].run_id, runs["late"].run_id]
    assert [run.data.metrics["best_epoch"] for run in sorted_runs] == [2, 3]


@contextmanager
def server(port: int, store: str) -> Iterator[None]:
    """MLflow's own server application, in a thread."""
    os.environ["_MLFLOW_SERVER_FILE_STORE"] = store
    serving = make_server("127.0.0.1", port, app, threaded=True)
    thread = Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_p8_points_wait_for_a_server_that_is_away(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = begin(uri, version, "away")
    port = free_port()
    sender = tracking.Sender(f"http://127.0.0.1:{port}", run.run_id, every_seconds=0.1)
    sender.log(1, {"train/loss": 1.0})
    time.sleep(0.5)
    assert len(sender.unsent()) == 1
    with server(port, uri):
        wait_until(lambda: not sender.unsent(), "the server to have the point")
    sender.log(2, {"train/loss": 2.0})
    time.sleep(0.3)
    assert [step for _, step, _ in sender.unsent()] == [2]
    assert [step for _, step, _ in sender.close(0.5)] == [2]
    assert history(uri, run.run_id, "train/loss") == [(1, 1.0)]


@pytest.mark.parametrize("tags", [{}, {"model.digest": "f" * 64}], ids=["training", "its model filed"])
def test_the_same_command_goes_on_with_a_run_that_was_cut_off(uri: str, version: Version, tags: dict[str, str]) -> None:
    first = begin(uri, version, f"continue-{len(tags)}")
    first.tag(tags)
    let_process_die(first)
    tracking_settings = {"uri": uri, "experiment": f"continue-{len(tags)}", "tags": {"note": "second"}, "run_name": "again"}
    changed = parse(
        {**VALUES, "tracking": tracking_settings, "train": {"workers": 4}, "task": {"kind": "tabular", "slices": ["label"]}}, "test"
    )
    second = tracking.open_training(changed, version, {})
    assert (second.run_id, second.folder, second.is_resumed) == (first.run_id, first.folder, True)
    run = MlflowClient(uri).get_run(second.run_id)
    assert (run.info.status, run.info.run_name, run.data.tags["note"]) == ("RUNNING", "again", "second")
    assert run.data.params["task.slices"] == "['label']"
    assert '"workers": 4' in read_config(uri, second.run_id)


def test_a_finished_training_is_found_by_its_identity(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.tracking.training.find_model", lambda client, run: None)
    run = begin(uri, version, "found")
    run.file(tracking.RESULT, b"{}")
    assert tracking.find_finished_training(config(uri, "found"), version) is None, "it is not finished"
    run.end("FINISHED")
    assert tracking.find_finished_training(config(uri, "found", workers=3), version) == (run.run_id, b"{}")
    assert tracking.find_finished_training(config(uri, "found", seed=8), version) is None
    assert tracking.find_finished_training(config(uri, "nothing"), version) is None


def test_the_same_command_while_it_runs_is_refused(uri: str, version: Version) -> None:
    run = begin(uri, version, "twice")
    with pytest.raises(TrackingError, match=f"run {run.run_id} is already training this model.*process {os.getpid()} on") as error:
        begin(uri, version, "twice")
    assert str(error.value).endswith("wait for it, stop it, or change the config")
    assert begin(uri, version, "twice", seed=8).run_id != run.run_id
    run.end("KILLED")
    assert begin(uri, version, "twice").run_id == run.run_id
    run.end("FINISHED")
    assert not begin(uri, version, "twice").is_resumed


def test_a_run_that_is_killed_already_is_not_resumed_while_its_workers_save(
    uri: str, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, statuses = begin(uri, version, "saving"), []

    def interrupt(trainer: Any, directory: Any, progress: Any, interrupted: Callable[[], None], *polls: Any) -> dict[str, Any]:
        interrupted()
        statuses.append(MlflowClient(uri).get_run(run.run_id).info.status)
        with pytest.raises(TrackingError, match=f"run {run.run_id} is already training this model"):
            begin(uri, version, "saving")
        return {"finished": True}

    for name in ("create_trainer", "WorkerMonitor", "Preemption"):
        monkeypatch.setattr(training_watch, name, MagicMock())
    monkeypatch.setattr(training_watch, "watch", interrupt)
    training_watch.train_in_groups(config(uri, "saving"), version, run, MagicMock(), MagicMock())
    assert statuses == ["KILLED"]
    run.end("KILLED")
    assert begin(uri, version, "saving").run_id == run.run_id


def test_a_command_leaves_a_run_alone_that_another_one_has_resumed(
    uri: str, version: Version, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after its machine was suspended for a while."""
    run = begin(uri, version, "taken over")
    tags = {HEARTBEAT: json.dumps({"time": time.time(), "host": "elsewhere", "process": 1})}
    run.tag(tags)
    monkeypatch.setattr(run_heartbeat, "BEAT_SECONDS", 0.02)
    with run_heartbeat.beating(run.client, run.run_id):
        wait_until(lambda: "heartbeat" not in {thread.name for thread in enumerate_threads()}, "the heartbeat to end")
    run.end("KILLED")
    stored_run = MlflowClient(uri).get_run(run.run_id)
    assert (stored_run.info.status, stored_run.data.tags[HEARTBEAT]) == ("RUNNING", tags[HEARTBEAT])
    assert f"run {run.run_id} stays as it is: it was resumed by process 1 on elsewhere" in caplog.text


def test_a_run_on_another_machine_is_dead_when_its_heartbeat_is_old(uri: str, version: Version) -> None:
    run = begin(uri, version, "elsewhere")
    run.tag({HEARTBEAT: json.dumps({"time": time.time(), "host": "elsewhere", "process": 1})})
    with pytest.raises(TrackingError, match="process 1 on elsewhere"):
        begin(uri, version, "elsewhere")
    run.tag({HEARTBEAT: json.dumps({"time": time.time() - DEAD_SECONDS, "host": "elsewhere", "process": 1})})
    assert begin(uri, version, "elsewhere").run_id == run.run_id


def test_a_heartbeat_that_is_none_is_of_nobody_at_work(uri: str, version: Version) -> None:
    run = begin(uri, version, "edited")
    for beat in ("", "{", "[" * 4_000, "[]", '{"time": "noon"}', '{"time": 1, "host": 2, "process": "x"}'):
        run.tag({HEARTBEAT: beat})
        assert begin(uri, version, "edited").run_id == run.run_id


@pytest.mark.parametrize(("status", "goes_on"), [("FINISHED", False), ("FAILED", True), ("KILLED", True)])
def test_only_a_finished_run_starts_anew(uri: str, version: Version, status: Any, goes_on: bool) -> None:
    run = begin(uri, version, status)
    run.end(status)
    second = begin(uri, version, status)
    assert (second.run_id == run.run_id) is goes_on


@pytest.mark.parametrize("train", [{"lr": 0.1}, {"epochs": 9}, {"seed": 3}])
def test_another_model_is_another_run(uri: str, version: Version, train: dict[str, Any]) -> None:
    first = begin(uri, version, f"other-{train}")
    assert begin(uri, version, f"other-{train}", **train).run_id != first.run_id


def test_other_rows_are_another_run(uri: str, version: Version) -> None:
    other = replace(version, manifest=version.manifest.model_copy(update={"digest": "f" * 64}))
    assert begin(uri, version, "rows").run_id != begin(uri, other, "rows").run_id


def test_p8_the_next_command_corrects_a_run_that_a_kill_left_running(uri: str, version: Version) -> None:
    killed = begin(uri, version, "killed")
    let_process_die(killed)
    begin(uri, version, "killed", lr=0.5)
    assert MlflowClient(uri).get_run(killed.run_id).info.status == "FAILED"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this config's folder", "in another folder"])
def test_what_was_done_before_a_kill_is_finished(uri: str, version: Version, elsewhere: bool) -> None:
    """The command died, or MLflow was away, between the commit or the model and the run's end."""
    filed, other = begin(uri, version, f"done-{elsewhere}"), begin(uri, version, f"done-{elsewhere}", seed=1)
    filed.tag({"model.digest": "f" * 64})
    client, experiment = MlflowClient(uri), MlflowClient(uri).get_run(filed.run_id).info.experiment_id
    etl = client.create_run(experiment, tags={KIND: "etl", HEARTBEAT: ""}).info.run_id
    folder = Path(version.root).parent
    if elsewhere:
        client.log_param(etl, "dataset.path", str(folder))
    for run in (filed, other):
        let_process_die(run)
    manifest = Path(version.root, "manifest.json")
    content = manifest.read_bytes()
    manifest.write_bytes(version.manifest.model_copy(update={"run_id": etl}).to_json())
    finished_config = config(uri, f"done-{elsewhere}", seed=2)
    placed = finished_config.model_copy(
        update={"dataset": finished_config.dataset.model_copy(update={"path": str(folder / "none" if elsewhere else folder)})}
    )
    tracking.open_training(placed, version, {})
    manifest.write_bytes(content)
    assert [client.get_run(run).info.status for run in (filed.run_id, other.run_id, etl)] == ["FINISHED", "FAILED", "FINISHED"]


@pytest.mark.parametrize(
    ("fault", "status"), [(None, "FINISHED"), (ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")]
)
def test_p8_an_etl_run_ends_as_what_happened(uri: str, version: Version, fault: type[BaseException] | None, status: str) -> None:
    etl_run_id = ""
    try:
        with tracking.etl_run(config(uri, "etl"), {tracking.SPARK_APPLICATION: "app-7"}) as run:
            etl_run_id = run.run_id
            if fault:
                raise fault
            manifest = version.manifest.model_copy(update={"rows_parsed": 10, "quarantined": {"age: >120?": 2, "split: ../b is NULL": 1}})
            run.finish(manifest, {"sort": 1.5})
    except BaseException as error:
        assert type(error) is fault
    etl_entry = MlflowClient(uri).get_run(etl_run_id)
    assert etl_entry.info.status == status
    if not fault:
        expected = {"rows/parsed": 10, "rows/train": 10, "rows/quarantined": 3, "quarantined/age_ _120_": 2, "seconds/sort": 1.5}
        assert etl_entry.data.metrics.items() >= expected.items()
        assert etl_entry.data.tags["dataset.digest"] == version.digest
        version_of_etl = replace(version, manifest=version.manifest.model_copy(update={"run_id": etl_run_id}))
        training = begin(uri, version_of_etl, "etl-then-training")
        assert MlflowClient(uri).get_run(training.run_id).data.tags[tracking.SPARK_APPLICATION] == "app-7"


def test_an_address_that_cannot_be_reached_is_named(version: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError, match=r"tracking.uri is http://127.0.0.1:9, which cannot be used.*start the server"):
        begin("http://127.0.0.1:9", version, "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"tracking.uri is sqlite:///.*/file/mlflow.db, which cannot be used"):
        begin(f"sqlite:///{tmp_path}/file/mlflow.db", version, "x")


def test_the_newest_model_of_an_experiment(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(uri, version, "models")
    with pytest.raises(TrackingError, match=r"experiment models at .* has no model; train one first"):
        tracking.newest_model(config(uri, "models"))
    client = MlflowClient(uri)
    experiment = client.get_run(run.run_id).info.experiment_id
    older, newer, unfinished = (client.create_logged_model(experiment, name="model") for _ in range(3))
    for model in (older, newer):
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    assert tracking.newest_model(config(uri, "models")) == newer.model_uri != unfinished.model_uri
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for away in ("", "models:/m-0123"):
        with pytest.raises(TrackingError, match=r"http://127.0.0.1:9.*start the server"):
            api.load_model(config("http://127.0.0.1:9", "models"), away)


def test_a_file_on_another_machine_is_refused(uri: str) -> None:
    tracking.check_host(uri, socket.gethostname())
    tracking.check_host("http://server:5000", "elsewhere")
    with pytest.raises(TrackingError, match=r"a file on elsewhere, but a worker runs on .*address of an MLflow server"):
        tracking.check_host(uri, "elsewhere")


def test_each_node_has_figures_of_its_own(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    run = begin(uri, version, "system")
    with tracking.system_metrics(uri, run.run_id, "node-7"):
        name, client = "system/node-7/cpu_utilization_percentage", MlflowClient(uri)
        wait_until(lambda: name in client.get_run(run.run_id).data.metrics, f"{name} in MLflow")


def test_weights_of_a_run_without_a_model_are_refused(uri: str, version: Version) -> None:
    run = begin(uri, version, "weights")
    with pytest.raises(TrackingError, match=f"run {run.run_id} has no model"):
        tracking.download_weights(uri, run.run_id)


def test_every_run_has_the_commit_of_its_code(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_GIT_COMMIT", "f00d" * 10)
    values = config(uri, "commits")
    with tracking.etl_run(values, {}) as etl, tracking.baseline_run(values, version) as baseline:
        runs = [etl.run_id, baseline.run_id, begin(uri, version, "commits").run_id]
    assert [MlflowClient(uri).get_run(run).data.tags["git.commit"] for run in runs] == ["f00d" * 10] * 3


def test_reading_a_run_leaves_no_file(uri: str, version: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(uri, version, "read")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert read_training(uri, run.run_id).config["name"] == "t"
    assert not list(tmp_path.iterdir())


def test_every_download_has_a_folder_that_is_removed() -> None:
    """Without one MLflow makes a temporary folder, which nobody removes."""
    calls = [
        (path.name, node)
        for path in sorted(Path(tracking.__file__).parents[1].rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("download_artifacts")
    ]
    assert len(calls) > 4
    assert not [
        f"{name}:{call.lineno}" for name, call in calls if len(call.args) < 3 and "dst_path" not in {word.arg for word in call.keywords}
    ]


def test_a_dataset_of_another_mlflow_is_trained_on(uri: str, version: Version) -> None:
    """Its manifest names a run that this MLflow does not have."""
    elsewhere = replace(version, manifest=version.manifest.model_copy(update={"run_id": "d" * 32}))
    run = begin(uri, elsewhere, "copied")
    tags = MlflowClient(uri).get_run(run.run_id).data.tags
    assert (tags["dataset.run_id"], tags[tracking.SPARK_APPLICATION]) == ("d" * 32, "")


def test_a_folder_that_is_gone_is_no_place_to_go_on_from(uri: str, version: Version, tmp_path: Path) -> None:
    present_folder, removed_folder = str(tmp_path / "runs"), str(tmp_path / "away" / "run")
    run = begin(uri, version, "moved", storage=present_folder)
    run.tag({FOLDER: removed_folder})
    assert begin_again(uri, version, present_folder) == run.folder
    run.tag({FOLDER: removed_folder})
    Path(removed_folder).mkdir(parents=True)
    assert begin_again(uri, version, present_folder) == removed_folder


def begin_again(uri: str, version: Version, storage: str) -> str:
    """Folder of the same command's run, after the one before it was killed."""
    experiment = MlflowClient(uri).get_experiment_by_name("moved")
    assert experiment is not None
    (run,) = MlflowClient(uri).search_runs([experiment.experiment_id])
    MlflowClient(uri).set_terminated(run.info.run_id, "KILLED")
    MlflowClient(uri).set_tag(run.info.run_id, HEARTBEAT, "")
    return begin(uri, version, "moved", storage=storage).folder


def test_a_sender_that_met_a_defect_says_so(uri: str, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread would be gone, and the curves with it, without a word."""

    def raise_missing_attribute(*_: Any) -> None:
        raise AttributeError("'Run' object has no attribute 'to_proto'")

    monkeypatch.setattr("mlflow.entities.Run.to_proto", raise_missing_attribute)
    sender = tracking.Sender(uri, begin(uri, version, "defect").run_id, every_seconds=0.05)
    sender.log(1, {"train/loss": 1.0})
    with pytest.raises(AttributeError, match="to_proto"):
        sender.close(30.0)
    with pytest.raises(AttributeError, match="to_proto"):
        sender.log(2, {"train/loss": 1.0})


def test_a_signal_while_a_run_begins_leaves_none_running(uri: str, version: Version) -> None:
    def begin_run() -> tracking.TrainingRun:
        run = begin(uri, version, "signalled")
        signal.raise_signal(signal.SIGINT)  # `kill` may give it to another thread, which may have to wait for a core
        return run

    with pytest.raises(KeyboardInterrupt), tracking.tracked_run(begin_run):
        raise AssertionError("the run is under way")
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("signalled")
    assert experiment is not None
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["KILLED"]


def test_p8_a_signal_amid_a_write_comes_when_the_write_is_over(uri: str) -> None:
    client = connect(uri)
    run_id = client.create_run(client.create_experiment("a signal amid a write")).info.run_id

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    event.listen(Session, "before_commit", lambda session: signal.raise_signal(signal.SIGTERM), once=True)
    with handle_signals(leave), pytest.raises(SystemExit):
        client.set_tag(run_id, "written", "yes")
    client.set_terminated(run_id, "KILLED")
    run = client.get_run(run_id)
    assert (run.data.tags["written"], run.info.status) == ("yes", "KILLED")


def test_a_working_folder_with_both_kinds_of_quotes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow writes the folder into SQL as it is."""
    folder = tmp_path / 'it\'s "here"'
    folder.mkdir()
    monkeypatch.chdir(folder)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        pytest.raises(TrackingError, match=r"no working folder with both kinds of quotes, .*; run from another folder"),
        mlflow_errors(uri),
    ):
        connect(uri).search_experiments()
    monkeypatch.chdir(tmp_path)
    assert connect(f"sqlite:///{tmp_path}/other.db").search_experiments()
