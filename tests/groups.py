"""Groups of processes that meet over Gloo, as workers do, without Ray."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from pipelines.train.workers import WorkerContext

# A server that has imported these forks every process: importing them anew took each 5 s of a core.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "torch",
        "torch._dynamo",  # an optimizer imports it at its first step
        "torch.distributed.checkpoint.state_dict",
        "torchmetrics",
        "pipelines.train.loop",
        "pipelines.train.ddp.ddp",
        "pipelines.train.exact.exact",
        "pipelines.strategies.sharded.sharded",
    ]
)
LIMIT_SECONDS = 240.0
"""Less than a test may take, so that a group that hangs says where."""
STACK_SECONDS = 2.0
"""For the processes to write their stacks."""


def run_processes(count: int, function: Callable[..., None], *arguments: Any, seconds: float = LIMIT_SECONDS) -> None:
    """Run `function(rank, *arguments)` in `count` processes, and raise what one of them raised. All have ended when this returns.

    Raises AssertionError with the stacks of those that have not ended by themselves after so many seconds.
    """
    with TemporaryDirectory(prefix="stacks-") as stacks:
        group = start_processes(_run_with_stacks, (stacks, function, arguments), count, join=False, start_method="forkserver")
        deadline = time.monotonic() + seconds
        try:
            while not group.join(max(0.0, deadline - time.monotonic())):
                late = {rank: process for rank, process in enumerate(group.processes) if process.is_alive()}
                assert not late or time.monotonic() < deadline, (
                    f"of {count} processes, {', '.join(map(str, late))} did not end in {seconds:g} s:\n{_stacks(late, Path(stacks))}"
                )
        finally:
            for process in group.processes:
                process.kill()
                process.join()


def _run_with_stacks(rank: int, stacks: str, function: Callable[..., None], arguments: tuple) -> None:
    """Call the function in a process that writes the stacks of its threads when it is asked to, also while it ends."""
    faulthandler.register(signal.SIGUSR1, Path(stacks, str(rank)).open("w"))  # noqa: SIM115  open to the end
    function(rank, *arguments)


def _stacks(processes: dict[int, BaseProcess], folder: Path) -> str:
    for process in processes.values():
        assert process.pid is not None
        os.kill(process.pid, signal.SIGUSR1)
    time.sleep(STACK_SECONDS)
    return "\n".join(f"process {rank}: {(folder / str(rank)).read_text()}" for rank in processes)


def run_group(world_size: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `function(place, *arguments)` in each of `world_size` processes. Returns their results; an exception is returned too."""
    folder.mkdir(parents=True, exist_ok=True)
    run_processes(world_size, _enter, world_size, folder, function, arguments)
    return [pickle.loads((folder / f"answer-{rank}").read_bytes()) for rank in range(world_size)]


def _enter(rank: int, world_size: int, folder: Path, function: Callable[..., Any], arguments: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", timedelta(seconds=60), world_size, rank)
    try:
        answer = function(WorkerContext(rank, world_size), *arguments)
    except Exception as error:
        answer = error.with_traceback(None)  # whose frames would keep the group's threads until the interpreter is gone
    (folder / f"answer-{rank}").write_bytes(pickle.dumps(answer))
    dist.destroy_process_group()
