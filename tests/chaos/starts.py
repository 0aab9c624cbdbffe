"""Groups of interpreters that train over Gloo and end by themselves, a hundred times under load.

What lives at an interpreter's end (loaders, the all-reduce, Gloo, savers) must not keep or abort it: each process ends with exit code
0, and writes nothing of a thread, a lock or a signal. A process that has computed nothing for `IDLE_SECONDS` hangs.

    python -m chaos.starts RANK WORLD_SIZE STRATEGY FOLDER      one of the processes
"""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from trainings import training

from chaos.processes import ROOT, environment
from chaos.training import Outcome
from pipelines.data.versions.versions import open_version
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

STARTS = 100
GROUPS = (("exact", 1), ("exact", 2), ("exact", 3), ("ddp", 2), ("ddp", 1))
IDLE_SECONDS, IDLE_SHARE = 60.0, 0.01
"""How long a process must use less than this share of a core to hang; beside others it may need minutes, and computes all the time."""
NOISE = re.compile(r"Assertion|Fatal Python error|terminate called|SIG[A-Z]{3,}|Traceback|leaked|mutex")


def run_all(folder: Path, seed: int, seconds: float) -> Iterator[Outcome]:
    """Start groups one after another, while other processes keep every core busy."""
    until, choose = time.monotonic() + seconds, random.Random(seed)
    training(folder, rows=256)
    with busy_cores():
        for number in range(STARTS):
            if time.monotonic() < until:
                strategy, world_size = choose.choice(GROUPS)
                yield start(folder, strategy, world_size, number)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Have two processes compute on each core."""
    load = [get_context("spawn").Process(target=spin, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for process in load:
        process.start()
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.join()


def spin() -> None:
    while True:
        sum(range(100_000))


def start(folder: Path, strategy: str, world_size: int, number: int) -> Outcome:
    """One group, from its start to the end of its last process."""
    meeting, began = folder / f"group-{number}", time.monotonic()
    meeting.mkdir()
    logs = [meeting / f"{rank}.log" for rank in range(world_size)]
    processes = []
    for rank, log in enumerate(logs):
        command = [sys.executable, "-X", "faulthandler", "-m", "chaos.starts", str(rank), str(world_size), strategy, str(meeting)]
        with log.open("wb") as output:
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=output, stderr=output))
    codes = [wait_or_kill(process) for process in processes]
    noise = [line for log in logs for line in log.read_text(errors="replace").splitlines() if NOISE.search(line)]
    note = f"{strategy} with {world_size}, exit codes {codes}" + (f", {noise[:3]}" if noise else "")
    return Outcome("start", codes == [0] * world_size and not noise, seconds=time.monotonic() - began, note=note)


def wait_or_kill(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process; it is killed if it hangs."""
    while True:
        with suppress(psutil.NoSuchProcess):
            before = sum(psutil.Process(process.pid).cpu_times()[:2])
        with suppress(subprocess.TimeoutExpired):
            return process.wait(IDLE_SECONDS)
        if sum(psutil.Process(process.pid).cpu_times()[:2]) - before < IDLE_SHARE * IDLE_SECONDS:
            process.kill()


def train(rank: int, world_size: int, strategy_name: str, meeting: Path) -> None:
    """One worker of the group: what `launch.worker` does without Ray."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{meeting}/store", timedelta(seconds=60), world_size, rank)
    context = WorkerContext(rank, world_size)
    config = training(meeting.parent, rows=256, strategy=strategy_name, workers=world_size, shards=6, global_batch=48, epochs=2)
    version = open_version(config.dataset.path, config.data_identity)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    result = Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(meeting / "run")), context, 2), Hooks()).run()
    assert result.finished
    dist.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
