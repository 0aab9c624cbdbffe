"""Functions that run at once in several processes of this machine, as workers do."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Answer = TypeVar("Answer")
_TIMEOUT = timedelta(seconds=300)


def call_in_processes(processes: int, function: Callable[..., Answer], *arguments: Any, threads: int = 1) -> list[Answer]:
    """Call `function` in each of so many processes, and return its answers by rank. Each process has `threads` threads of torch, and they
    are a Gloo group, so that they can wait for each other. Function and arguments are pickled. Raises what the function raises."""
    with TemporaryDirectory(prefix="lockstep-group-") as folder:
        rendezvous = str(Path(folder) / "rendezvous")
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            calls = [pool.submit(_call_in_group, rank, processes, rendezvous, threads, function, arguments) for rank in range(processes)]
            return [call.result() for call in calls]


def _call_in_group(
    rank: int, processes: int, rendezvous: str, threads: int, function: Callable[..., Answer], arguments: tuple[Any, ...]
) -> Answer:
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", f"file://{rendezvous}", _TIMEOUT, processes, rank)
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()
