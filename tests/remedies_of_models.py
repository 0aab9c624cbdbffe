"""Remedies of errors about runs, models, their registry, exports and endpoints: what raises each, and what it offers instead.

MLflow is a store of its own in each case's folder; a model, where one is needed, is logged once for all cases.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlflow
import numpy as np
import torch
from click.testing import CliRunner
from loopback import free_port
from mlflow import MlflowClient
from mlflow.cli import cli
from promotions import finished_run, untrained_weights
from remedies import ROOT
from remedy_cases import model, store, training
from torch import nn
from torchmetrics import Metric, MetricCollection
from trainings import characters, open_dataset
from trainings import training as small_training
from versions import write_version
from werkzeug.serving import make_server

from pipelines.config import Config
from pipelines.config.serving import Endpoint
from pipelines.config.tasks.task import TabularSettings, VisionSettings
from pipelines.errors import LockstepError
from pipelines.report.arguments import read_arguments as read_report
from pipelines.report.command import report_page, write_report
from pipelines.report.filing import file_baseline
from pipelines.serving.export.subject import read_subject
from pipelines.serving.export.targets import Environment, target_writer
from pipelines.serving.http.request import read_body
from pipelines.serving.http.start import _check_port
from pipelines.serving.model.logged_model import download_model, drop_unproven_query, load_model
from pipelines.serving.registry import alias
from pipelines.serving.registry.promote import _target, read_candidate
from pipelines.strategies.sharded.stages import stages_by_place
from pipelines.tasks import model_parallel
from pipelines.tasks.bind import build_task
from pipelines.tasks.tabular import Tabular as TabularTask
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.history import read_training
from pipelines.tracking.models import resolve_version, run_model_files
from pipelines.tracking.tracked_run import KIND, MlflowRun
from pipelines.tracking.training import FOLDER, find_run_folder

Do = Callable[[Path], Any]
NOBODY = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Trained:
    config: Config
    run_id: str
    uri: str
    home: TemporaryDirectory[str]


@cache
def model_run() -> Trained:
    """A finished run with a model."""
    home = TemporaryDirectory()
    config = small_training(Path(home.name), rows=40)
    run_id, uri = finished_run(config, untrained_weights(config, seed=1))
    return Trained(config, run_id, uri, home)


def candidate(folder: Path, name: str = "toy", path: str = "", key: tuple[str, ...] = ()) -> Any:
    """The run of `model_run`, with its config or a changed one. Without `path`, its dataset stands in the config's folder."""
    config = model_run().config
    dataset = config.dataset.model_copy(update={"path": path or config.dataset.path, "key": key})
    return read_candidate(config.model_copy(update={"name": name, "dataset": dataset}), model_run().run_id)


def candidate_of_fold(folder: Path) -> Any:
    """A finished run that is the model of one fold."""
    config = model_run().config
    client = MlflowClient(config.tracking.uri)
    run_id = client.create_run("0").info.run_id
    client.log_dict(run_id, {"name": config.name, "train": {"fold": 2}}, "config.json")
    client.set_terminated(run_id)
    return read_candidate(config, run_id)


def delete_candidate(folder: Path) -> Any:
    MlflowClient(model_run().config.tracking.uri).delete_run(model_run().run_id)
    return candidate(folder)


def restore_candidate(folder: Path) -> Any:
    uri = model_run().config.tracking.uri
    with unchanged_uri():
        mlflow.set_tracking_uri(uri)  # as MLFLOW_TRACKING_URI does in a process of its own
        restore = CliRunner().invoke(cli, ["runs", "restore", "--run-id", model_run().run_id])
    assert restore.exit_code == 0, restore.output
    return candidate(folder)


def other_dataset(folder: Path) -> Config:
    """The config of `model_run` over other rows."""
    return small_training(folder, rows=44, uri=model_run().config.tracking.uri)


def candidate_of_new_run(config: Config) -> Any:
    run_id = connect(config.tracking.uri).create_run("0", tags={"dataset.digest": open_dataset(config).digest}).info.run_id
    client = MlflowClient(config.tracking.uri)
    client.log_text(run_id, config.model_dump_json(), "config.json")
    client.set_terminated(run_id)
    logged_model = client.create_logged_model("0", name="model", source_run_id=run_id)
    client.finalize_logged_model(logged_model.model_id, "READY")
    return read_candidate(config, run_id)


@contextmanager
def unchanged_uri() -> Iterator[None]:
    before = mlflow.get_tracking_uri()
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)


def load(folder: Path, uri: str, server: str = "") -> Any:
    with unchanged_uri():
        return load_model(server or model_run().config.tracking.uri, uri)


def download(folder: Path, uri: str, server: str = "") -> Any:
    with unchanged_uri():
        return download_model(server or model_run().config.tracking.uri, uri, folder)


@contextmanager
def serving(uri: str) -> Iterator[str]:
    """The address of MLflow's own server over a store."""
    from mlflow.server import app, handlers

    stores = patch.multiple(handlers, _tracking_store=None, _model_registry_store=None)
    with patch.dict(os.environ, {"_MLFLOW_SERVER_FILE_STORE": uri, "_MLFLOW_SERVER_REGISTRY_STORE": uri}), stores:
        server = make_server("127.0.0.1", free_port(), app, threaded=True)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.shutdown()
            server.server_close()


def while_serving(uri: str, ask: Callable[[str], Any]) -> None:
    with serving(uri) as address:
        ask(address)


class Guarded(BaseHTTPRequestHandler):
    """Answers 401 without a name and a password, as a gateway does."""

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization")
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(b"{}" if allowed else b'{"message": "Unauthorized"}')

    do_POST = do_GET  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


def ask_gateway(folder: Path, **variables: str) -> None:
    server = HTTPServer(("127.0.0.1", 0), Guarded)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        uri = f"http://127.0.0.1:{server.server_port}"
        with patch.dict(os.environ, variables), mlflow_errors(uri):
            connect(uri).search_experiments()
    finally:
        server.shutdown()
        server.server_close()


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def raise_what_is_logged(name: str, do: Callable[[], Any]) -> None:
    """A warning is an error here."""
    handler, logger = Logged(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        do()
    finally:
        logger.removeHandler(handler)
    if handler.messages:
        raise LockstepError("\n".join(handler.messages))


def body(limits: Endpoint, *chunks: bytes, ends: bool = True) -> bytes:
    """What an endpoint reads of a request in these chunks, after which the client is silent or has ended."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if not ends:
            await asyncio.Event().wait()

    return asyncio.run(read_body("", stream(), limits))


def port(number: int) -> None:
    _check_port(Endpoint(port=number))


def taken_port() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port(listener.getsockname()[1])


def read_python_versions(python: str) -> Any:
    with patch.dict(os.environ, {"LOCKSTEP_XLA": python}):
        return Environment("stablehlo", "xla", ("numpy",), "XLA", Path("none.py")).versions()


def check_make_target(name: str) -> None:
    """`make NAME` installs the Python that the environment expects."""
    with patch.dict(os.environ, {"LOCKSTEP_XLA": ""}):
        environment = Environment("stablehlo", name, (), "XLA", Path("none.py"))
        place = f".venv-{name}/bin/python"
        try:
            assert str(environment.python()).endswith(place)
        except LockstepError as error:
            assert place in str(error)
    rules = (ROOT / "Makefile").read_text()
    assert f"\n{name}: .venv-{name}/installed" in rules and f"-m venv .venv-{name}" in rules


def promote_champion(folder: Path) -> Any:
    """Promote a model to the first champion of `people`."""
    with unchanged_uri():
        return alias.promote_model(connect(store(folder)), store(folder), "people", f"models:/{model(folder)}", training(folder), None, {})


def slow_promotion(folder: Path, seconds: float = 0.0) -> Any:
    """A promotion between whose registration and move so many seconds pass."""
    times = iter((0.0, seconds))
    with patch.object(alias, "time", SimpleNamespace(monotonic=partial(next, times))):
        return promote_champion(folder)


CHAMPION = "models:/people@champion"


def store_with_champion(folder: Path) -> str:
    """The address of a store in which a model is registered."""
    promote_champion(folder)
    return store(folder)


def model_of_run_with(folder: Path, run_id: str) -> None:
    with run_model_files(model_run().config.tracking.uri, run_id) as (_, files):
        assert (files / "MLmodel").exists()


def run_without_model() -> str:
    return str(MlflowClient(model_run().config.tracking.uri).create_run("0").info.run_id)


def start_run(folder: Path, uri: str = "", **tags: str) -> MlflowRun:
    return MlflowRun(connect(store(folder)), uri or store(folder), training(folder, "{}", **tags))


def file_damaged_baseline(folder: Path) -> None:
    version = dataset(folder, **NUMBERS)
    raise_what_is_logged("pipelines.report.filing", lambda: file_baseline(start_run(folder), version, {"test": b"no archive"}))


def page_by_command(folder: Path) -> None:
    run = start_run(folder)
    write_report(read_report("report", [run.run_id, "--tracking.uri", run.uri, "--output", str(folder / "page.html")]))
    assert "What was trained" in (folder / "page.html").read_text()


def page(folder: Path, *kinds: str, has_data_page: bool = False) -> str:
    """The page of runs of these kinds, or their comparison."""
    client = connect(store(folder))
    runs = tuple(training(folder, "{}", **({KIND: kind} if kind else {})) for kind in kinds)
    if has_data_page:
        client.log_text(runs[0], "the data", "data.html")
    return report_page(store(folder), runs)


def written_page(folder: Path, file: str) -> None:
    run_id = training(folder, "{}")
    write_report(read_report("report", [run_id, "--tracking.uri", store(folder), "--output", str(folder / file)]))


def drop_query_of_duckdb(duckdb_version: str) -> None:
    manifest = open_dataset(model_run().config).manifest.model_copy(
        update={"versions": {"duckdb": duckdb_version}, "served_query": "a query"}
    )
    raise_what_is_logged("pipelines.serving.model.logged_model", lambda: drop_unproven_query(manifest))


class Unordered(Metric):
    """A metric of a user's, which does not say whether higher is better."""

    higher_is_better: bool | None = None

    def update(self, *values: Any) -> None:
        pass

    def compute(self) -> torch.Tensor:
        return torch.zeros(())


class Ordered(Unordered):
    higher_is_better = True


def choose_own_monitor(metric: type[Metric]) -> Any:
    class Own(TabularTask):
        def metrics(self) -> MetricCollection:
            return MetricCollection({"own": metric()})

    task = build_task(TabularSettings(), open_dataset(model_run().config).manifest)
    return Own(task.settings, task.data).choose_monitor("own")


def dataset(folder: Path, **columns: np.ndarray) -> Any:
    return write_version(folder / "data", {"train": [columns]}, cardinality={"label": 2})


def texts(folder: Path) -> Config:
    return characters(folder, rows=40, task={"layers": 1, "heads": 2, "width": 16})


def cut(schedule: str, degree: int, blocks: int) -> Any:
    links = [model_parallel.Link(lambda hidden, batch: hidden, (nn.Linear(1, 1),)) for _ in range(blocks + 1)]
    return model_parallel.cut_stages(sum(map(len, stages_by_place(schedule, degree))), links[0], links[1:])


def training_by_name(folder: Path, name: str, **tags: str) -> str:
    run_id = training(folder, **tags)
    return find_run_folder(store(folder), name or run_id)


def send_loss(folder: Path, uri: str) -> None:
    """`Sender` goes on trying in a thread: with an address that answers, it ends."""
    start_run(folder, uri).send([(0, 1, {"train/loss": 1.0})], seconds=0.5 if uri else 60.0)


def export_subject(folder: Path, path: str = "") -> Any:
    """The subject of an export: the run of `model_run`, with a dataset at `path`."""
    config = model_run().config
    dataset = config.dataset.model_copy(update={"path": path or config.dataset.path})
    return read_subject(config.model_copy(update={"dataset": dataset}), model_run().run_id)


@cache
def hls4ml() -> Any:
    """The target's module, for its functions that need nothing of hls4ml's."""
    with patch.dict(sys.modules, {"hls4ml": ModuleType("hls4ml")}):
        return import_module("pipelines.exports.hls4ml.target")


def overflow(precision: str, largest: float) -> None:
    if notes := hls4ml().overflows((precision,), largest):
        raise LockstepError("\n".join(notes))


def hls_network(settings: Any, version: Any) -> Any:
    return hls4ml()._network(SimpleNamespace(network=build_task(settings, version.manifest).model()))


def images(folder: Path, network: str) -> Any:
    shape = (3, 1, 28, 28) if network == "fedavg" else (3, 3, 8, 8)
    return hls_network(VisionSettings(network=network), dataset(folder, x=np.zeros(shape, "uint8"), label=NUMBERS["label"]))


NUMBERS = {"x": np.zeros((3, 2), "float32"), "label": np.zeros(3, "uint8")}
ROW_GATES = {"metric": "loss", "compare": True, "slices": ("x0",), "slice_bound": 1.0, "latency_ms": 50.0}
"""Gates that need test rows."""


def comparison_target(config: Config, **registry: Any) -> Any:
    """The rows that gates compare models on, if the registry has such gates."""
    settings = config.registry.model_copy(update={**ROW_GATES, **registry})
    gated_config = config.model_copy(update={"registry": settings})
    return _target(gated_config, SimpleNamespace(version=open_dataset(config)), None)


def without_rows(config: Config, **registry: Any) -> None:
    assert comparison_target(config, **registry, compare=False, slices=(), latency_ms=None) is None


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "endpoint.bytes_per_request; send the rows in several requests": (
        lambda folder: body(Endpoint(bytes_per_request=100), b"a" * 80, b"b" * 80),
        (lambda folder: [body(Endpoint(bytes_per_request=100), part * 80) for part in (b"a", b"b")],),
    ),
    "endpoint.request_seconds; send it in smaller ones": (
        lambda folder: body(Endpoint(request_seconds=0.01), b"a", ends=False),
        (lambda folder: body(Endpoint(request_seconds=0.01), b"a"),),
    ),
    "endpoint.host and endpoint.port are": (lambda folder: taken_port(), (lambda folder: port(free_port()),)),
    "a Python with {}, which does not exist": (
        lambda folder: read_python_versions("/nowhere/python"),
        (
            lambda folder: read_python_versions(sys.executable),
            lambda folder: check_make_target("xla"),
            lambda folder: check_make_target("executorch"),
        ),
    ),
    "use the config of the run, and set dataset.path to its version": (
        lambda folder: export_subject(folder, other_dataset(folder).dataset.path),
        (export_subject, lambda folder: export_subject(folder, open_dataset(model_run().config).root)),
    ),
    "the target of the export is": (
        lambda folder: target_writer("onx"),
        (lambda folder: target_writer("onnx"), lambda folder: target_writer("stablehlo")),
    ),
    "give it more bits before the point, or scale the feature": (
        lambda folder: overflow("ap_fixed<12,3>", 5.0),
        (lambda folder: overflow("ap_fixed<12,4>", 5.0), lambda folder: overflow("ap_fixed<12,3>", 0.5)),
    ),
    "hls4ml takes a chain of layers": (
        lambda folder: hls_network(texts(folder).task, open_dataset(texts(folder))),
        (
            lambda folder: images(folder, "small"),
            lambda folder: images(folder, "fedavg"),
            lambda folder: hls_network(TabularSettings(), dataset(folder, **NUMBERS)),
            lambda folder: target_writer("onnx"),
        ),
    ),
    "took too long to answer; run again": (
        lambda folder: slow_promotion(folder, alias.LEASE_SECONDS),
        (slow_promotion,),
    ),
    "is deleted in {}, where no decision about it": (delete_candidate, (restore_candidate,)),
    "which has not seen all rows; for the champion, train": (candidate_of_fold, (candidate,)),
    "and the config is that of {}; give its own config": (lambda folder: candidate(folder, name="other"), (candidate,)),
    "give the config of the run, or train on this dataset": (
        lambda folder: candidate(folder, path=other_dataset(folder).dataset.path),
        (candidate, lambda folder: candidate_of_new_run(other_dataset(folder))),
    ),
    "other settings of source or dataset than the config's": (lambda folder: candidate(folder, key=("x0",)), (candidate,)),
    "cannot be computed from a row's prediction; set": (
        lambda folder: comparison_target(model_run().config, metric="ndcg_10"),
        (
            lambda folder: without_rows(model_run().config, metric="ndcg_10"),
            *(lambda folder, name=name: comparison_target(model_run().config, metric=name) for name in ("auc", "accuracy", "loss")),
        ),
    ),
    "has no test rows to compare models on; set": (
        lambda folder: comparison_target(small_training(folder, rows=3)),
        (lambda folder: without_rows(small_training(folder, rows=3)), lambda folder: comparison_target(small_training(folder, rows=4))),
    ),
    "only trainings and baselines are compared; leave it out": (
        lambda folder: page(folder, "", "etl"),
        (lambda folder: page(folder, "", ""), lambda folder: page(folder, "etl", has_data_page=True)),
    ),
    "which has no page; name a training, a baseline, an ETL, a cross-validation or a search": (
        lambda folder: page(folder, "other"),
        (
            lambda folder: page(folder, ""),
            lambda folder: page(folder, "baseline"),
            lambda folder: page(folder, "etl", has_data_page=True),
            lambda folder: page(folder, "cross-validation"),
        ),
    ),
    "it ended before its page was drawn": (lambda folder: page(folder, "etl"), (lambda folder: page(folder, "etl", has_data_page=True),)),
    "--output is {}, which cannot be written": (
        lambda folder: written_page(folder, "mlflow.db/page.html"),
        (lambda folder: written_page(folder, "page.html"),),
    ),
    "stands twice, and is not compared with itself": (
        lambda folder: report_page(store(folder), (training(folder, "{}"),) * 2),
        (lambda folder: page(folder, "", ""),),
    ),
    "has no page: %s: %s; jobs/report.py": (file_damaged_baseline, (page_by_command,)),
    "train with the version of the ETL for a model that takes raw rows": (
        lambda folder: drop_query_of_duckdb("0.0"),
        (lambda folder: drop_query_of_duckdb(metadata.version("duckdb")),),
    ),
    "model {} cannot be loaded from {}": (
        lambda folder: load(folder, "models:/people/7"),
        (
            lambda folder: load(folder, model_run().uri),
            lambda folder: while_serving(model_run().config.tracking.uri, partial(load, folder, model_run().uri)),
        ),
    ),
    "model {} cannot be read from {}": (
        lambda folder: download(folder, model_run().uri, NOBODY),
        (
            lambda folder: download(folder, model_run().uri),
            lambda folder: while_serving(model_run().config.tracking.uri, partial(download, folder, model_run().uri)),
        ),
    ),
    "dataset.target is empty; add one, or use a task without": (
        lambda folder: build_task(TabularSettings(), dataset(folder, x=NUMBERS["x"]).manifest),
        (
            lambda folder: build_task(TabularSettings(), dataset(folder, **NUMBERS).manifest),
            lambda folder: build_task(texts(folder).task, open_dataset(texts(folder)).manifest),
        ),
    ),
    "a metric without higher_is_better; set it in its class": (
        lambda folder: choose_own_monitor(Unordered),
        (lambda folder: choose_own_monitor(Ordered),),
    ),
    "lower train.strategy.pipeline, choose schedule 1F1B": (
        lambda folder: cut("Interleaved1F1B", 2, 3),
        (lambda folder: cut("Interleaved1F1B", 1, 3), lambda folder: cut("1F1B", 2, 3), lambda folder: cut("Interleaved1F1B", 2, 4)),
    ),
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD": (
        ask_gateway,
        (
            lambda folder: ask_gateway(folder, MLFLOW_TRACKING_USERNAME="a", MLFLOW_TRACKING_PASSWORD="b"),
            lambda folder: ask_gateway(folder, MLFLOW_TRACKING_TOKEN="c"),
        ),
    ),
    "use the ID of a finished training, which MLflow": (
        lambda folder: model_of_run_with(folder, "0" * 32),
        (lambda folder: model_of_run_with(folder, model_run().run_id),),
    ),
    "use the ID of a training that MLflow shows as FINISHED": (
        lambda folder: model_of_run_with(folder, run_without_model()),
        (lambda folder: model_of_run_with(folder, model_run().run_id),),
    ),
    "which does not respond: {}; start the server, or wait": (
        lambda folder: read_training(NOBODY, "0" * 32),
        (lambda folder: while_serving(store(folder), partial(read_training, run_id=training(folder, "{}"))),),
    ),
    "register a model under this name, or start the server": (
        lambda folder: resolve_version(store(folder), CHAMPION),
        (
            lambda folder: resolve_version(store_with_champion(folder), CHAMPION),
            lambda folder: while_serving(store_with_champion(folder), partial(resolve_version, model=CHAMPION)),
        ),
    ),
    "are still unsent to {}; run the same command again": (
        lambda folder: send_loss(folder, NOBODY),
        (lambda folder: send_loss(folder, ""),),
    ),
    "use the id of its run, or the name of its job": (
        lambda folder: training_by_name(folder, "none"),
        (
            lambda folder: training_by_name(folder, "", **{FOLDER: str(folder)}),
            lambda folder: training_by_name(folder, "job", **{FOLDER: str(folder), "ray.submission_id": "job"}),
        ),
    ),
}
"""By a part of the message: what raises it, and what its remedies do instead."""
