"""Measures the machine at hand, and writes its data sheet: products of matrices, memory, kernels, what its processes send each
other, and what a model costs them that they have divided.

Everything is measured in as many processes as the machine has cores, each with one thread, since that is how workers use it.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
import yaml
from scipy.optimize import nnls
from torch import nn

from pipelines.planner.divided_models import TimedMessages, time_activations, time_microbatches, time_shards
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import HERE, SHEETS
from pipelines.runtime import atomic
from pipelines.train.ordered_all_reduce import TreeAllReduce

MESSAGE_BYTES = tuple(2**power for power in range(10, 25, 2))
"""Of the all-reduces that are timed."""
_REPEATS, _WARM_UP = 15, 2
_SUMS = 40
"""Sums of gradients that are timed."""
_SIDE, _NUMBERS, _KERNELS = 1024, 2**24, 1000
"""Side of the matrices, numbers of the vectors, and kernels that are timed together."""


def write_sheet(folder: Path, cores: int = 0) -> Path:
    """Measure this machine with `cores` processes, by default as many as it has cores for this one, and write the sheet `here` into
    `folder`. What is not measured, such as a price, stays as the sheet `cpu2` assumes it."""
    cores = cores or len(os.sched_getaffinity(0))
    sheet = yaml.safe_load((SHEETS / "cpu2.yaml").read_text(encoding="utf-8"))
    path = folder / f"{HERE}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_file(path, yaml.safe_dump(sheet | measure_machine(cores), sort_keys=False).encode())
    return path


def measure_machine(cores: int) -> dict[str, Any]:
    """The fields of the data sheet that are measured. A device is a core."""
    flops, memory, kernel = (median(values) for values in zip(*call_in_processes(cores, _time_operators), strict=True))
    measured = {"fraction": 1.0, "basis": "measured", "source": f"on this machine, in {cores} processes at once"}
    fields: dict[str, Any] = {
        "peak_flops": {"fp32": flops},
        "memory_bytes": psutil.virtual_memory().total / cores,
        "memory_bytes_per_second": memory,
        "host_bytes_per_second": memory,
        "kernel_seconds": kernel,
        "devices_per_machine": cores,
        "achieved": dict.fromkeys(("matmul", "attention", "memory", "network"), measured),
        "sources": ["measured"],
    }
    if cores > 1:
        timed = time_exchanges(cores)
        links = fit_messages(timed.pop("links"))
        fields |= {f"link_{name}": links[name] for name in ("latency_seconds", "bytes_per_second")}
        fields["exchanges"] = {exchanged: fit_messages(messages) for exchanged, messages in timed.items()}
    return fields


def time_exchanges(workers: int) -> dict[str, list[TimedMessages]]:
    """Messages between so many processes of this machine, with the seconds that they take: those of all-reduces over `links` of Gloo, as a
    ring through the processes sends them; and those of each kind of `Hardware.exchanges`."""
    return call_in_processes(workers, _time_exchanges)[0]


def fit_messages(timed: Sequence[TimedMessages]) -> dict[str, float]:
    """Latency in seconds, and bytes a second, of messages, and the seconds that a step pays once: by least squares of relative errors, none
    below 0."""
    sizes, counts, seconds = np.array([(messages.message_bytes, messages.messages, messages.seconds) for messages in timed]).T
    terms = np.stack([counts, counts * sizes, np.ones_like(sizes)], axis=1)
    if len(set(counts)) == 1:
        terms = terms[:, :2]  # what a step pays once cannot be told from what it pays for every message
    fitted, _ = nnls(terms / seconds[:, None], np.ones_like(seconds))
    latency, per_byte, once = (*map(float, fitted), 0.0)[:3]
    return {"latency_seconds": max(latency, 1e-9), "bytes_per_second": 1 / max(per_byte, 1e-12), "step_seconds": once}


def _time_exchanges() -> dict[str, list[TimedMessages]]:
    divided = {"shards": time_shards(), "activations": time_activations(), "microbatches": time_microbatches()}
    return _time_all_reduces() | divided


def _time_all_reduces() -> dict[str, list[TimedMessages]]:
    rank, workers = dist.get_rank(), dist.get_world_size()
    blocks = [range(number, number + 1) for number in range(workers)]
    tree = TreeAllReduce(blocks, workers, rank, torch.device("cpu"), max(MESSAGE_BYTES))
    tensors = [torch.zeros(size // 4) for size in MESSAGE_BYTES]
    by_links = [_median_seconds(dist.all_reduce, tensor, dist.barrier) for tensor in tensors]
    timed = {
        "links": [TimedMessages(size / workers, 2 * (workers - 1), taken) for size, taken in zip(MESSAGE_BYTES, by_links, strict=True)]
    }
    if tree.is_in_memory:
        part, in_memory = (workers - 1) / workers, [_seconds_between_passes(tree, tensor) for tensor in tensors]
        timed["sums"] = [TimedMessages(size * part, 2, taken) for size, taken in zip(MESSAGE_BYTES, in_memory, strict=True)]
    return timed


def _seconds_between_passes(tree: TreeAllReduce, tensor: torch.Tensor) -> float:
    """Median seconds of an all-reduce after a pass of a model, as in training: caches hold the pass, and threads that wait must get a core
    again. Of workers, the last one to arrive waits for no other, so the shortest time counts."""
    model, rows, seconds = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))), torch.rand(64, 256), []
    for _ in range(_WARM_UP + _SUMS):
        model(rows).sum().backward()
        tensor.add_(1.0)
        started = time.perf_counter()
        tree.reduce([tensor], numbers=torch.zeros(1))
        seconds.append(time.perf_counter() - started)
    shortest = torch.tensor(seconds[_WARM_UP:])
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return float(shortest.median())


def _time_operators() -> tuple[float, float, float]:
    """FLOP/s of a product, bytes a second of an addition, and seconds of a small kernel with its part in autograd."""
    matrix, vector, small = torch.rand(_SIDE, _SIDE), torch.rand(_NUMBERS), torch.ones(8, requires_grad=True)

    def call_kernels(value: torch.Tensor) -> None:
        for _ in range(_KERNELS):
            value = value + 1

    dist.barrier()
    product = _median_seconds(lambda other: torch.mm(matrix, other), torch.rand(_SIDE, _SIDE), dist.barrier)
    addition = _median_seconds(vector.add_, torch.rand(_NUMBERS), dist.barrier)
    kernels = _median_seconds(call_kernels, small, dist.barrier)
    return 2 * _SIDE**3 / product, 3 * 4 * _NUMBERS / addition, kernels / _KERNELS


def _median_seconds(call: Callable[[torch.Tensor], object], argument: torch.Tensor, wait: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_WARM_UP + _REPEATS):
        wait()
        started = time.perf_counter()
        call(argument)
        seconds.append(time.perf_counter() - started)
    return median(seconds[_WARM_UP:])
