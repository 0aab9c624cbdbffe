"""Remedies of errors of trainings: checkpoints, clients, the driver, the loader, the loop."""

import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from config_remedies import VALUES
from filed import file_weights
from layouts import fit_layout
from ray.exceptions import RayActorError
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError
from rows import training_on
from trainings import StopsAfter, open_dataset, training
from versions import write_version

from pipelines import tracking
from pipelines.config import StrategySettings, parse
from pipelines.config.train.base import BalanceSettings
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.storage import seal
from pipelines.data.versions.versions import Version, read_column
from pipelines.errors import LockstepError
from pipelines.launch.checks import check_before_etl, check_fold, check_training
from pipelines.launch.cluster import uses_gpus
from pipelines.launch.initial_weights import initial_weights
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.training_run import _log_model
from pipelines.launch.training_watch import watch
from pipelines.launch.verify import _check, _load_digests, _version
from pipelines.launch.worker import _initial_weights
from pipelines.monitor.stack_dump import describe_workers, stack
from pipelines.monitor.worker_heartbeat import Heartbeat
from pipelines.runtime.weights import model_digest, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.tracking.history import TrainingRecord, read_training
from pipelines.train.checkpoint import checkpoints, run_directory
from pipelines.train.checkpoint.checkpoint_record import Record, append_step
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import INITIAL, WEIGHTS, RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.shard_balancer import ShardBalancer
from pipelines.train.step_clock import create_step_clock
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import COLLECTIVE_SHARE, Mesh, WorkerContext

Do = Callable[[Path], Any]
NOISE = {"clip": 1.0, "noise": 1.0, "weighting": "equal"}
COMMON = {"encoder": "vocabulary", "min_count": 2}
UNCLIPPED: dict[str, Any] = {"clip_norm": None, "optimizer": "sgd", "weight_decay": 0.0, "momentum": 0.0}
NOBODY = 65_534


class SaidError(LockstepError):
    """What the product says without raising it."""


@contextmanager
def raised() -> Iterator[None]:
    """Raises the first warning of the product."""

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    messages: list[str] = []
    handler = Kept(logging.WARNING)
    logging.getLogger("pipelines").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("pipelines").removeHandler(handler)
    if messages:
        raise SaidError(messages[0])


def refuse_without_stack(text: str) -> None:
    """Raises what stands in place of a stack."""
    if "no stack" in text:
        raise SaidError(text)


def check_config(folder: Path, **settings: Any) -> None:
    config = training(folder, **{"rows": 200, **settings})
    with raised():
        check_training(config, open_dataset(config))


class UnbalancedSettings(StrategySettings):
    implementation = "remedies_of_training:Unbalanced"


class Unbalanced(Strategy):
    """Inherits everything, and so cannot own other shards."""


def check_unbalanced(folder: Path, balance: Any) -> None:
    """Check a config that was made without a file."""
    config = training(folder, rows=200, strategy="remedies_of_training:UnbalancedSettings", workers=2)
    train = config.train.model_copy(update={"balance": BalanceSettings(kind=balance)})
    check_training(config.model_copy(update={"train": train}), open_dataset(config))


def before_etl(name: str) -> None:
    values = {
        "name": "toy",
        "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
        "dataset": {"path": "data", "features": {name: {"encoder": "standardize", "column": "row_key"}}, "target": {"y": "label"}},
        "task": {"kind": "tabular"},
    }
    check_before_etl(parse(values, "toy"))


def gpus(gpu_count: int, **train: Any) -> bool:
    with patch("ray.cluster_resources", lambda: {"GPU": gpu_count}):
        return uses_gpus(Train.model_validate(train))


def run_training(folder: Path, run: str = "run", stop_after: int | None = None, **train: Any) -> None:
    """Train on one worker, in the run's folder."""
    settings = {
        "strategy": "exact",
        "rows": 200,
        "epochs": 1,
        "workers": 1,
        "grad_accum_steps": 1,
        "checkpoint": {"every_steps": 2},
        **train,
    }
    result, *_ = fit_layout(WorkerContext(), folder, folder / run, settings, stop_after)
    assert result.finished or stop_after is not None


def single_rows(folder: Path, **train: Any) -> None:
    """64 rows for a step, and 8 for the last one, with a batch norm: one for each shard."""
    run_training(folder, **{"rows": 72, "task": {"batch_norm": True}, "global_batch": 64, "shards": 8, **train})


def block_checkpoints(folder: Path, is_repaired: bool = False) -> None:
    """Put a file in the way of checkpoints, or remove it, and restore one."""
    way = folder / "run" / "checkpoints"
    way.parent.mkdir(exist_ok=True)
    way.unlink() if is_repaired else way.write_text("in the way")
    with patch.object(run_directory, "_PAUSES_SECONDS", ()):
        assert Saved(folder).restore() is not None


def put_below_file(folder: Path, is_repaired: bool = False) -> None:
    way = folder / "file"
    way.unlink() if is_repaired else way.write_text("in the way")
    with patch.object(run_directory, "_PAUSES_SECONDS", ()):
        RunDirectory(str(way / "run")).put("a", b"a")


def move_storage(folder: Path) -> None:
    """The same command with another storage, to which the run's folder was moved, continues the run there."""
    config = training(folder, rows=200)
    run = tracking.open_training(config, open_dataset(config), {})
    RunDirectory(run.folder).put("a", b"a")
    run.end("FAILED")
    shutil.move(folder / "runs", folder / "elsewhere")
    elsewhere = training(folder, storage=str(folder / "elsewhere"))
    resumed = tracking.open_training(elsewhere, open_dataset(elsewhere), {})
    assert resumed.run_id == run.run_id and RunDirectory(resumed.folder).get("a") == b"a"


def verify_killed_run(folder: Path, is_resumed: bool) -> None:
    """Verify a run that was killed; its command, given again, resumes and ends it."""
    config = training(folder, rows=200)
    run = tracking.open_training(config, open_dataset(config), {})
    run.client.log_text(run.run_id, "{}", "config.json")
    run.end("KILLED")
    if is_resumed:
        with tracking.tracked_run(lambda: tracking.open_training(config, open_dataset(config), {})) as resumed_run:
            assert resumed_run.run_id == run.run_id
    _check(read_training(config.tracking.uri, run.run_id), Train(strategy="exact"))


def check_config_of_folds(split: dict[str, Any], fold: int | None = None) -> None:
    check_fold(parse({**VALUES, "dataset": {**VALUES["dataset"], "split": split}, "train": {"fold": fold}}, "x"))


class Saved:
    """A checkpoint of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "run", {"model": {"w": torch.ones(3)}}
        self.checkpoints = Checkpoints(RunDirectory(str(self.folder)), WorkerContext(), 2)
        record = Record(step=1, position={}, order={}, dataset_digest="", state={"epochs": 1, "best_epoch": 1}, best=True)
        self.name = Path(self.checkpoints.commit(self.checkpoints.begin(self.state, record))).name

    def alter(self) -> None:
        """Write another digest into its record."""
        name, record = self.checkpoints.best(1)
        altered = replace(record, digests=dict.fromkeys(record.digests, "0" * 64))
        (self.folder / name / "record.json").write_bytes(seal(asdict(altered)))

    def load_best(self) -> bool:
        self.checkpoints.load_best(1, self.state)
        return True

    def restore(self) -> Any:
        return self.checkpoints.restore(self.state)

    def start_anew(self) -> None:
        shutil.rmtree(self.folder)
        assert self.restore() is None
        self.checkpoints.commit(self.checkpoints.begin(self.state, Record(1, {}, {}, "", {})))
        assert self.restore() is not None

    def damage(self) -> bytes:
        file = self.folder / "checkpoints" / self.name / "record.json"
        content = file.read_bytes()
        file.write_bytes(content[:-9])
        return content

    def mend(self, content: bytes) -> None:
        (self.folder / "checkpoints" / self.name / "record.json").write_bytes(content)
        assert self.restore() is not None


def restore_newer(folder: Path, known_format: int) -> None:
    """Restore a checkpoint of a later version of Lockstep by one that knows `known_format`."""
    saved = Saved(folder)
    file = saved.folder / "checkpoints" / saved.name / "record.json"
    _, record = saved.restore()
    file.write_bytes(seal(asdict(replace(record, format=99))))
    with patch.object(checkpoints, "FORMAT", known_format):
        assert saved.restore() is not None


def clients(
    folder: Path,
    by: str = "writer",
    writers: list[str | None] | None = None,
    encoder: Any = "label",
    splits: Any = None,
    chosen: dict[str, Any] | None = None,
    **train: Any,
) -> None:
    """Twelve clients, unless `writers` names the client of each row."""
    names = writers or [f"writer {number % 12}" for number in range(120)]
    x = np.random.default_rng(0).standard_normal(len(names)).astype("float32")
    settings = {
        "shards": 4,
        "global_batch": 40,
        "optimizer": "sgd",
        "seed": 5,
        **train,
        "strategy": {"kind": "federated", "client_column": by, "per_round": 5, **(chosen or {})},
    }
    task = {"kind": "tabular", "hidden": [8], "batch_norm": settings.pop("batch_norm", False)}
    rows = pa.table({"x": x, "writer": names, "label": x > 0})
    config = training_on({"train": rows}, folder, {"x": "standardize"}, {"label": "binary"}, task, {"writer": encoder}, **settings)
    version = open_dataset(config)
    check_training(config, replace(version, row_groups=version.row_groups[:0]) if splits == () else version)


def lonely(folder: Path, writers: str = "abbbbcccccc", **train: Any) -> None:
    """Clients of whom two take part in a round, with a batch norm: a has a single row."""
    values = {"global_batch": 8, "batch_norm": True, **train}
    clients(folder, writers=list(writers), chosen={"per_round": 2}, **values)


def small_version(folder: Path) -> Version:
    part = {"x": np.arange(6, dtype="float32"), "who": np.array([0, 0, 1, 1, 2, 2]), "label": np.zeros(6, "uint8")}
    return write_version(folder / "data", {"train": [part]}, cardinality={"label": 2})


def read(version: Version) -> None:
    Reader(version, "train").read(0)
    read_column(version, "train", version.columns[1])


def read_damaged_part(folder: Path, remedy: str = "") -> None:
    """Read a part that is cut off, or as it was, or in a version made anew."""
    version = small_version(folder)
    (part,) = Path(version.root).rglob("part-*.parquet")
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    if remedy == "restored":
        part.write_bytes(content)
    elif remedy == "made again":
        shutil.rmtree(version.root)
        version = small_version(folder)
    read(version)


def load_reserved_name(folder: Path, name: str) -> None:
    part = {name: np.zeros((8, 2), "float32"), "label": np.zeros(8, "uint8")}
    Loader(write_version(folder / "data", {"train": [part]}, cardinality={"label": 2}), "train", Order(shards=1, global_batch=2))


class Balanced:
    """Workers that compute so many shards a second, on machines of one letter each."""

    def __init__(self, machines: str, least: int = 2) -> None:
        strategy: Any = SimpleNamespace(mesh=Mesh(WorkerContext()), clock=create_step_clock(torch.device("cpu")))
        settings = {"workers": [least, len(machines)], "balance": {"leave_out": True}}
        self.balance = ShardBalancer(strategy, Train.model_validate(settings), Hooks())
        self.balance._machines = list(machines)

    def compare(self, *speeds: float) -> None:
        with raised():
            self.balance._check_slow_workers(list(speeds))

    def stay_slow(self, *speeds: float) -> None:
        with pytest.raises(SaidError, match="leave out its machine"):
            self.compare(*speeds)
        self.compare(*speeds)

    def leave_out(self, *speeds: float) -> None:
        self.stay_slow(*speeds)
        assert self.balance.left_out
        remaining_speeds = [
            speed for machine, speed in zip(self.balance._machines, speeds, strict=True) if machine not in self.balance.left_out
        ]
        Balanced("ab", least=1).compare(*remaining_speeds)


def initial(folder: Path, change: Callable[[bytes], bytes] = lambda content: content) -> None:
    """Weights of a run, as it logged them or changed since."""
    config = training(folder, rows=200)
    weights = build_task(config.task, open_dataset(config).manifest).model().state_dict()
    origin = file_weights(config, change(to_bytes(weights)), model_digest(weights))
    started = training(folder, init_from=origin)
    initial_weights(started, open_dataset(started))


def read_initial(folder: Path, content: bytes | None) -> None:
    directory = RunDirectory(str(folder))
    if content:
        directory.put_with_checksum(INITIAL, content)
    _initial_weights(directory)


def training_record(config: dict[str, Any] | None = None, status: str = "FINISHED", **tags: str) -> TrainingRecord:
    return TrainingRecord("a1b2", status, tags, config or {})


def left_behind(folder: Path, first_step: int | None, steps: int | None = None) -> None:
    directory = RunDirectory(str(folder / "run"))
    if first_step is not None:
        append_step(directory, first_step, {"w": "0"}, [1.0], "")
    _load_digests(training_record(), directory, steps)


def find_run_version(folder: Path, path: Callable[[Version], str]) -> None:
    """A run on the first of two versions of a dataset."""
    config = training(folder, rows=200)
    first = open_dataset(config)
    later = write_version(folder / "data" / "later", {"train": [{"x": np.zeros(3, "float32"), "label": np.zeros(3, "uint8")}]})
    tags = {"dataset.digest": first.digest, "dataset.version": Path(first.root).name}
    dataset = config.dataset.model_copy(update={"path": path(first) or later.root})
    _version(config.model_copy(update={"dataset": dataset}), training_record(None, **tags), TrainingProgress())


def describe_worker(folder: Path, host: str = "") -> None:
    """Describe a worker, this process, that has a heartbeat."""
    directory = RunDirectory(str(folder))
    name = host or socket.gethostname()
    with patch("pipelines.monitor.worker_heartbeat.socket.gethostname", lambda: name), Heartbeat(directory, WorkerContext(), 100.0):
        pass
    with patch.dict(os.environ):
        os.environ.pop("RAY_ADDRESS", None)
        lines = list(describe_workers(directory))
    if "it is on another machine" in lines[-1]:
        raise SaidError(lines[-1])


def late(folder: Path, timeout_seconds: float) -> None:
    """Waits for another worker, whose step takes a second."""
    store = dist.HashStore()
    step = Timer(1.0, store.set, ("done", "1"))
    step.start()
    try:
        with Heartbeat(RunDirectory(str(folder)), WorkerContext(0, 2), timeout_seconds):
            store.wait(["done"], timedelta(seconds=COLLECTIVE_SHARE * timeout_seconds))
    finally:
        step.join()


def command(folder: Path, ending: Exception | None = None, answers: bool | None = None) -> None:
    """A training's command, in place of whose Ray this process trains. After two steps Ray ends it with an error; or the model is to be
    logged, if MLflow answers. A command that follows goes on from there."""
    config = training(folder, rows=200, strategy="exact", epochs=1, checkpoint={"every_steps": 1})
    version, is_first = open_dataset(config), not (folder / "runs").exists()
    task = build_task(config.task, version.manifest)
    with tracking.tracked_run(lambda: tracking.open_training(config, version, {})) as run:
        assert run.is_resumed != is_first
        directory = RunDirectory(run.folder)

        def fit() -> SimpleNamespace:
            strategy, checkpoints = create_strategy(config.train, task, WorkerContext()), Checkpoints(directory, WorkerContext(), 2)
            assert bool(directory.names("checkpoints")) != is_first
            result = Loop(config, version, task, strategy, checkpoints, StopsAfter(1 if ending else None)).run()
            if ending:
                raise ending
            directory.put_with_checksum(WEIGHTS, to_bytes(dict(strategy.weights())))
            return SimpleNamespace(return_value={**asdict(result), "unsent": []})

        trainer: Any = SimpleNamespace(fit=fit, scaling_config=SimpleNamespace(elasticity_enabled=False), stop=lambda: None)
        outcome = watch(trainer, directory, TrainingProgress(), lambda: None)
        if answers is None:
            return
        with patch.object(tracking, "is_reachable", lambda *_: answers):
            assert _log_model(config, version, run, directory, outcome).run_id == run.run_id


def as_nobody() -> None:
    """The stack of a process that another user has started."""
    if os.getuid() == 0:
        with patch("pipelines.monitor.stack_dump.subprocess.run", partial(subprocess.run, user=NOBODY, group=NOBODY)):
            refuse_without_stack(stack(os.getpid()))
    refuse_without_stack(stack(1))


def as_the_user() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.getuid() and scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("this kernel refuses ptrace to others than a parent")
    refuse_without_stack(stack(os.getpid()))


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "{}/{}: {}; remove {} to start anew": (
        lambda folder: (saved := Saved(folder)).alter() or saved.load_best(),
        (lambda folder: Saved(folder).start_anew(),),
    ),
    "the best one, {}; restore it from a backup, or remove": (
        lambda folder: (saved := Saved(folder)).damage() and saved.load_best(),
        (
            lambda folder: (saved := Saved(folder)).mend(saved.damage()) or saved.load_best(),
            lambda folder: (saved := Saved(folder)).damage() and saved.start_anew(),
        ),
    ),
    "and no other checkpoint is left; {}remove {} to start anew": (
        lambda folder: (saved := Saved(folder)).damage() and saved.restore(),
        (
            lambda folder: (saved := Saved(folder)).mend(saved.damage()),
            lambda folder: (saved := Saved(folder)).damage() and saved.start_anew(),
        ),
    ),
    "the last complete checkpoint is kept: free space or repair the store": (
        block_checkpoints,
        (lambda folder: block_checkpoints(folder, is_repaired=True),),
    ),
    "has format {}, newer than {}: upgrade Lockstep": (
        lambda folder: restore_newer(folder, known_format=2),
        (lambda folder: restore_newer(folder, known_format=99),),
    ),
    "{}; free space or repair the store, or move the run's folder": (
        put_below_file,
        (lambda folder: put_below_file(folder, is_repaired=True), move_storage),
    ),
    "train.strategy.per_round is {}, but {} has only": (
        lambda folder: clients(folder, chosen={"per_round": 20}),
        (lambda folder: clients(folder, chosen={"per_round": 10}),),
    ),
    "it must be less than 1 / {}, the number of clients": (
        lambda folder: clients(folder, chosen={**NOISE, "delta": 0.1}),
        (lambda folder: clients(folder, chosen={**NOISE, "delta": 0.01}),),
    ),
    "leave these clients out in source.query": (
        lonely,
        (
            lambda folder: lonely(folder, "bbbbcccccc"),
            lambda folder: lonely(folder, batch_norm=False),
            lambda folder: lonely(folder, "aabbcc", global_batch=4),
            lambda folder: lonely(folder, "aaaabbbb", grad_accum_steps=2),
        ),
    ),
    "but the model has buffers, such as {}, to which no noise": (
        lambda folder: clients(folder, chosen=NOISE, batch_norm=True),
        (lambda folder: clients(folder, chosen=NOISE, batch_norm=False),),
    ),
    "different clients get the same number from it": (
        lambda folder: clients(folder, encoder={"encoder": "hash", "buckets": 50}),
        tuple(lambda folder, encoder=encoder: clients(folder, encoder=encoder) for encoder in ("label", "vocabulary")),
    ),
    "it must be one whole number: encode it with": (
        lambda folder: clients(folder, by="x"),
        tuple(lambda folder, encoder=encoder: clients(folder, encoder=encoder) for encoder in ("label", "vocabulary")),
    ),
    "has no rows in split train, and so no clients": (
        lambda folder: clients(folder, splits=()),
        (clients,),
    ),
    "leave them out by source.expect, or encode it with label": (
        lambda folder: clients(folder, writers=["rare", *"abcdef" * 20], encoder=COMMON),
        (
            lambda folder: clients(folder, writers=[*"abcdef" * 20], encoder=COMMON),
            lambda folder: clients(folder, writers=["rare", *"abcdef" * 20], encoder="label"),
        ),
    ),
    "restore the file, or remove the version's folder": (
        read_damaged_part,
        tuple(lambda folder, remedy=remedy: read_damaged_part(folder, remedy) for remedy in ("restored", "made again")),
    ),
    "train.balance is auto, which strategy": (
        lambda folder: check_unbalanced(folder, "auto"),
        (lambda folder: check_unbalanced(folder, "equal"),),
    ),
    "a column of dataset is called {}, a name that batches": (
        lambda folder: before_etl("row_key"),
        (lambda folder: before_etl("number"),),
    ),
    "a column of {} is called {}, a name that batches": (
        lambda folder: load_reserved_name(folder, "row_key"),
        (lambda folder: load_reserved_name(folder, "number"),),
    ),
    "choose a number that divides them": (
        lambda folder: check_config(folder, workers=3),
        tuple(lambda folder, workers=workers: check_config(folder, workers=workers) for workers in (2, 4, 8)),
    ),
    "which need one each; {}set train.use_gpu to auto": (
        lambda folder: gpus(1, use_gpu=True, workers=2),
        (lambda folder: gpus(1, use_gpu=True, workers=1) or pytest.fail("no GPU"), lambda folder: gpus(1, use_gpu="auto", workers=2)),
    ),
    "whose weights are not the ones that it logged": (
        lambda folder: initial(folder, lambda content: content[:-1] + bytes([content[-1] ^ 1])),
        (initial,),
    ),
    "whose weights cannot be read: {}; train that run again": (
        lambda folder: initial(folder, lambda content: content[:100]),
        (initial,),
    ),
    "py-spy may not read the process; run this as": (
        lambda folder: as_nobody(),
        (lambda folder: as_the_user(),),
    ),
    "has no heartbeat of a worker; name a run that trains": (
        lambda folder: list(describe_workers(RunDirectory(str(folder)))),
        (describe_worker,),
    ),
    "no stack: it is on another machine; set RAY_ADDRESS": (
        lambda folder: describe_worker(folder, "elsewhere"),
        (describe_worker,),
    ),
    "only a FINISHED run can be verified: run its command": (
        lambda folder: verify_killed_run(folder, is_resumed=False),
        (lambda folder: verify_killed_run(folder, is_resumed=True),),
    ),
    "nothing to compare with; restore the folder": (
        lambda folder: left_behind(folder, None),
        (lambda folder: left_behind(folder, 1),),
    ),
    "verify the whole run, without --steps": (
        lambda folder: left_behind(folder, 8, steps=4),
        (lambda folder: left_behind(folder, 8, steps=None),),
    ),
    "verify a run of strategy {}": (
        lambda folder: _check(training_record(), Train()),
        (
            lambda folder: _check(training_record(), Train(strategy="exact")),
            lambda folder: _check(training_record(), Train(strategy="local_sgd")),
            lambda folder: _check(training_record(), Train(strategy={"kind": "federated", "client_column": "x"}, global_batch=80)),
        ),
    ),
    "set dataset.path to the run's version": (
        lambda folder: find_run_version(folder, lambda version: ""),
        (lambda folder: find_run_version(folder, lambda version: version.root),),
    ),
    "check that machine, or raise train.timeout_seconds": (
        lambda folder: late(folder, 0.4),
        (lambda folder: late(folder, 100.0),),
    ),
    "workers died more often than train.max_failures": (
        lambda folder: command(folder, WorkerGroupError("they died", {0: RayActorError()})),
        (command,),
    ),
    "Ray lost the training's controller": (
        lambda folder: command(folder, RayActorError()),
        (command,),
    ),
    "Ray could not start the workers": (
        lambda folder: command(folder, ControllerError(RuntimeError("no actor"))),
        (command,),
    ),
    "has not answered for {} minutes; run the same command": (
        lambda folder: command(folder, answers=False),
        (lambda folder: command(folder, answers=True),),
    ),
    "is gone, from which the run started; restore the file": (
        lambda folder: read_initial(folder, None),
        (lambda folder: read_initial(folder, to_bytes({"w": torch.ones(3)})),),
    ),
    "a batch norm got a single row, which has no variance": (
        single_rows,
        (
            lambda folder: single_rows(folder, global_batch=72),
            lambda folder: single_rows(folder, shards=4),
            lambda folder: single_rows(folder, shards=2, grad_accum_steps=2),
            lambda folder: single_rows(folder, remainder="drop"),
        ),
    ),
    "raise train.global_batch, or lower {}train.grad_accum_steps": (
        lambda folder: check_config(folder, strategy="exact", global_batch=8, task={"batch_norm": True}),
        (
            lambda folder: check_config(folder, strategy="exact", global_batch=16, task={"batch_norm": True}),
            lambda folder: check_config(folder, strategy="exact", global_batch=8, shards=4, task={"batch_norm": True}),
            lambda folder: check_config(folder, strategy="exact", global_batch=16, grad_accum_steps=1, task={"batch_norm": True}),
        ),
    ),
    "train.remainder is keep, and the {} rows of an epoch": (
        lambda folder: check_config(folder, rows=72, remainder="keep", strategy="exact", task={"batch_norm": True}),
        (
            lambda folder: check_config(folder, rows=72, remainder="drop", strategy="exact", task={"batch_norm": True}),
            lambda folder: check_config(folder, rows=72, remainder="keep", global_batch=24, strategy="exact", task={"batch_norm": True}),
        ),
    ),
    "leave out its machine, as train.balance.leave_out does": (
        lambda folder: Balanced("abc").compare(1.0, 1.0, 0.1),
        (lambda folder: Balanced("abc").leave_out(1.0, 1.0, 0.1),),
    ),
    "no machine is left out: %d workers would remain": (
        lambda folder: Balanced("acc").stay_slow(1.0, 1.0, 0.1),
        (
            lambda folder: Balanced("acc", least=1).leave_out(1.0, 1.0, 0.1),
            lambda folder: Balanced("accb").leave_out(1.0, 1.0, 0.1, 1.0),
        ),
    ),
    "dataset.split has folds, and this is for one model": (
        lambda folder: check_config_of_folds({"folds": 5}),
        (
            lambda folder: check_config_of_folds({"folds": 5}, 1),
            lambda folder: check_config_of_folds({"train": 0.8, "validation": 0.1, "test": 0.1}),
        ),
    ),
    "can only resume with the same rows in the same order": (
        lambda folder: [run_training(folder, stop_after=1), run_training(folder, seed=1)],
        (lambda folder: [run_training(folder, stop_after=1), shutil.rmtree(folder / "run"), run_training(folder, seed=1)],),
    ),
    "the last complete checkpoint is kept; lower train.lr": (
        lambda folder: run_training(folder, lr=1e4, **UNCLIPPED),
        (
            lambda folder: run_training(folder, lr=1e-2, **UNCLIPPED),
            lambda folder: run_training(folder, lr=1e4, **{**UNCLIPPED, "clip_norm": 1e-4}),
        ),
    ),
}
"""By a part of the message: what raises it, or says it, and what its remedies do instead."""
IN_PLACE = (
    "workers died more often than train.max_failures",
    "Ray lost the training's controller",
    "Ray could not start the workers",
    "has not answered for {} minutes; run the same command",
    "the last complete checkpoint is kept: free space or repair the store",
    "{}; free space or repair the store, or move the run's folder",
)
"""Cases whose remedies work on what raised the error."""
