"""Groups of processes that meet over Gloo, as workers do, without Ray."""

import multiprocessing
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from pipelines.collectives.context import WorkerContext

# A server that has imported these forks every process: importing them anew took each 5 s of a core.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "torch",
        "torchmetrics",
        "pipelines.train.loop",
        "pipelines.parallel.ddp.ddp",
        "pipelines.parallel.exact.exact",
        "pipelines.parallel.sharded.sharded",
    ]
)


def run_processes(count: int, function: Callable[..., None], *arguments: Any) -> None:
    """Run `function(rank, *arguments)` in `count` processes, and raise what one of them raised."""
    start_processes(function, arguments, count, start_method="forkserver")


def in_group(world_size: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(place, *arguments)` returns in each of `world_size` processes; an exception is returned too."""
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
