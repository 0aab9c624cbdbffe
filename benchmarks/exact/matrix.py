"""Checks the promise of strategy `exact` on real data: the same model for every number of workers, after kills and resizes.

Workers are plain processes. They communicate through shared memory, or NCCL if each has a GPU; more workers than GPUs share them.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from benchmarks.report import Row
from pipelines.config import Config, load, parse
from pipelines.config.load import with_absolute_paths
from pipelines.data.versions.versions import open_version
from pipelines.runtime.weights import model_digest, model_weights, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

ROOT = Path(__file__).parents[2]
WORKERS = (1, 2, 3, 4, 5, 8)
RESIZED = (3, 2, 5, 4)
"""Numbers of workers: before the first kill, after it, and so on."""
SMALL_WORKERS, SMALL_RESIZED = (1, 3, 8), (3, 2, 4)
"""For a test: one worker, three that share the shards unevenly, and one for each shard."""
LIMIT_SECONDS = 600
# Workers are forked from a server that has imported these modules: importing them in each worker took 5 s of a core.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["torch", "torchmetrics", "pipelines.train.loop", "pipelines.train.ddp.ddp", "pipelines.train.exact.exact"])


@dataclass(frozen=True)
class Case:
    """A pipeline of conf/, with overrides by dotted key."""

    pipeline: str
    settings: dict[str, Any] = field(default_factory=dict)
    slower: int = 1
    """The factor by which the number of steps is reduced."""

    def config(self, home: Path, **train: Any) -> Config:
        settings = {**self.settings, **{f"train.{name}": value for name, value in train.items()}}
        return with_absolute_paths(load(ROOT / "conf" / f"{self.pipeline}.yaml", settings), home)


CASES = {
    "digits, convolutions, dropout, adamw": Case("digits"),
    "digits, ResNet-18: batch norm, dropout, sgd": Case(
        "digits", {"task.network": "resnet18", "train.optimizer": "sgd", "train.lr": 0.05, "train.remainder": "keep"}, slower=3
    ),
    "digits, accumulated, bf16, adamw": Case("digits", {"train.grad_accum_steps": 2, "train.precision": "bf16"}),
    "adult, embeddings, dropout, adamw": Case("adult"),
    "adult, batch norm, sgd, accumulated, clipped": Case(
        "adult",
        {"task.batch_norm": True, "train.optimizer": "sgd", "train.lr": 0.05, "train.grad_accum_steps": 3, "train.clip_norm": 0.5},
    ),
    "adult, bf16, sgd, 12 shards": Case(
        "adult", {"train.optimizer": "sgd", "train.lr": 0.05, "train.precision": "bf16", "train.shards": 12, "train.global_batch": 516}
    ),
}
KILLED = "digits, convolutions, dropout, adamw"


def create_datasets(home: Path) -> None:
    """Make the dataset versions that do not exist yet."""
    for pipeline in sorted({case.pipeline for case in CASES.values()}):
        if not (home / "data" / pipeline).exists():
            environment = {**os.environ, "LOCKSTEP_HOME": str(home), "PYTHONPATH": str(ROOT)}
            command = [sys.executable, str(ROOT / "jobs/etl.py"), str(ROOT / f"conf/{pipeline}.yaml")]
            subprocess.run(command, env=environment, check=True, capture_output=True)


def join(rank: int, world_size: int, rendezvous: str) -> WorkerContext:
    """Join the process group, with one CPU thread, or with a GPU, which is shared if there are fewer GPUs than workers."""
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    backend = "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=world_size, timeout=timedelta(seconds=LIMIT_SECONDS))
    return WorkerContext(rank, world_size, device)


class Steps(Hooks):
    """Callbacks that report rank 0's step to the parent process."""

    def __init__(self, reached: Any) -> None:
        self._reached = reached

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._reached.value = step


def fit(context: WorkerContext, config: Config, folder: Path, hooks: Hooks | None = None) -> tuple[str, bytes]:
    """Train from the last checkpoint to the end. Returns the digest of the best epoch's model, and the model."""
    torch.use_deterministic_algorithms(False)  # an earlier run of this process may have been exact
    version = open_version(config.dataset.path, config.data_identity)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, config.train.checkpoint.keep, LIMIT_SECONDS)
    Loop(config, version, task, strategy, checkpoints, hooks or Hooks()).run()
    weights = model_weights(strategy.model)
    return model_digest(weights), to_bytes(weights)


def config_values(config: Config) -> dict[str, Any]:
    """The config as plain values for another process, since its class may be created when it is parsed."""
    return config.model_dump(mode="json", by_alias=True)


def fit_all(jobs: list[tuple[Config, int]], folder: Path) -> list[tuple[str, bytes, float]]:
    """Train every config on its number of workers. Returns digests, models and seconds. One group of processes runs all, one
    after another, since starting processes takes longer than most runs."""
    folder.mkdir(parents=True, exist_ok=True)
    plain_jobs = [(config_values(config), workers) for config, workers in jobs]
    start_processes(_turns, (plain_jobs, folder), max(workers for _, workers in jobs), start_method="forkserver")
    results = []
    for number in range(len(jobs)):
        summary = json.loads((folder / f"{number}.json").read_text())
        results.append((summary["digest"], (folder / f"{number}.safetensors").read_bytes(), summary["seconds"]))
    return results


def _turns(rank: int, jobs: list[tuple[dict[str, Any], int]], folder: Path) -> None:
    for number, (values, workers) in enumerate(jobs):
        if rank < workers:
            context = join(rank, workers, f"file://{folder}/meeting-{number}")
            started = time.perf_counter()
            config = parse(values, "benchmark")
            digest, content = fit(context, config, folder / f"run-{number}")
            if rank == 0:
                about = {"digest": digest, "seconds": time.perf_counter() - started}
                (folder / f"{number}.safetensors").write_bytes(content)
                (folder / f"{number}.json").write_text(json.dumps(about))
                print(f"{number}: {config.name} on {workers} workers, {about['seconds']:.1f} s, {digest[:8]}", file=sys.stderr, flush=True)
            dist.destroy_process_group()


def fit_killed(config: Config, folder: Path, resized: tuple[int, ...], kills: list[int], chance: random.Random) -> str:
    """Train on each number of workers of `resized` in turn. At each step of `kills`, a worker gets SIGKILL, and then the others,
    as Ray would kill them."""
    folder.mkdir(parents=True)
    for attempt, workers in enumerate(resized):
        reached = FORKING.Value("i", 0)
        members = [
            FORKING.Process(target=_member, args=(rank, workers, attempt, config_values(config), folder, reached))
            for rank in range(workers)
        ]
        for member in members:
            member.start()
        if attempt < len(kills):
            while reached.value < kills[attempt]:
                if not all(member.is_alive() for member in members):
                    raise RuntimeError(f"one of {workers} workers exited by itself before step {kills[attempt]}")
                time.sleep(0.002)
            _kill(chance.choice(members))
            for member in members:
                _kill(member)
        for member in members:
            member.join()
    if any(member.exitcode for member in members):
        raise RuntimeError(f"the last group of workers ended with {[member.exitcode for member in members]}")
    return (folder / "digest").read_text()


def _kill(member: BaseProcess) -> None:
    if member.pid is not None and member.is_alive():
        os.kill(member.pid, signal.SIGKILL)


def _member(rank: int, workers: int, attempt: int, values: dict[str, Any], folder: Path, reached: Any) -> None:
    context = join(rank, workers, f"file://{folder}/meeting-{attempt}")
    digest, _ = fit(context, parse(values, "benchmark"), folder / "run", Steps(reached))
    if rank == 0:
        (folder / "digest").write_text(digest)
    dist.destroy_process_group()


def matrix(home: Path, folder: Path, steps: int, seed: int, small: bool) -> list[Row]:
    """A row for every case with its digest by number of workers, and a row for the killed run."""
    create_datasets(home)
    numbers, resized = (SMALL_WORKERS, SMALL_RESIZED) if small else (WORKERS, RESIZED)
    configs = {name: case.config(home, strategy="exact", epochs=1_000, max_steps=steps // case.slower) for name, case in CASES.items()}
    results = fit_all([(config, workers) for config in configs.values() for workers in numbers], folder)
    rows: list[Row] = []
    for name, case in CASES.items():
        answers, results = results[: len(numbers)], results[len(numbers) :]
        rows.append(
            _row(name, steps // case.slower, {str(workers): digest for workers, (digest, _, _) in zip(numbers, answers, strict=True)})
        )
        if name == KILLED:
            chance = random.Random(seed)
            kills = sorted(chance.sample(range(2, steps - 1), len(resized) - 1))
            config = case.config(home, strategy="exact", epochs=1_000, max_steps=steps, checkpoint={"every_steps": 2})
            digest = fit_killed(config, folder / "killed", resized, kills, chance)
            killed = f"{name}; killed at steps {', '.join(map(str, kills))}, on {', then '.join(map(str, resized))}"
            rows.append(_row(killed, steps, {"1": answers[0][0], "killed and resized": digest}))
    return rows


def _row(name: str, steps: int, digests: dict[str, str]) -> Row:
    same = len(set(digests.values())) == 1
    return {"case": name, "steps": steps, **{key: digest[:8] for key, digest in digests.items()}, "identical": "yes" if same else "NO"}
