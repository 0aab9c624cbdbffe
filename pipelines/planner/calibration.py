"""Measures the machine at hand, and writes its data sheet: products of matrices, memory, kernels, what its processes send each
other, and what a sharded unit costs them.

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
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import SHEETS
from pipelines.runtime import atomic
from pipelines.train.ordered_all_reduce import TreeAllReduce

HERE = "here"
"""Name of the data sheet."""
MESSAGE_BYTES = tuple(2**power for power in range(10, 25, 2))
"""Of the all-reduces that are timed."""
_REPEATS, _WARM_UP = 15, 2
_SUMS = 40
"""Sums of gradients that are timed."""
_SIDE, _NUMBERS, _KERNELS = 1024, 2**24, 1000
"""Side of the matrices, numbers of the vectors, and kernels that are timed together."""
_UNITS, _UNIT_WIDTHS, _UNIT_ROWS = 4, (8, 64, 256, 1024), 32
"""Linear layers of a sharded model, their widths, and rows of a step."""


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
        links = {way: fit_link(points, cores) for way, points in time_messages(cores).items()}
        latency, rate = links["sockets"]
        fields |= {"link_latency_seconds": latency, "link_bytes_per_second": rate}
        if "memory" in links:
            latency, rate = links["memory"]
            fields |= {"sum_latency_seconds": latency, "sum_bytes_per_second": rate}
        latency, rate = fit_shards(call_in_processes(cores, time_shards)[0], cores)
        fields |= {"shard_latency_seconds": latency, "shard_bytes_per_second": rate}
    return fields


def time_messages(workers: int) -> dict[str, list[tuple[int, float]]]:
    """Bytes and median seconds of an all-reduce: `sockets` over Gloo, and `memory` as workers of one machine add up gradients in it."""
    return call_in_processes(workers, _time_all_reduces)[0]


def fit_link(points: Sequence[tuple[int, float]], workers: int) -> tuple[float, float]:
    """Latency in seconds, and bytes a second, of a ring through `workers` whose all-reduces took these seconds: by least squares of
    relative errors."""
    sizes, seconds = np.array(points).T
    terms = 2 * (workers - 1) * np.stack([np.ones_like(sizes), sizes / workers], axis=1)
    return _fit_latency_and_rate(terms, seconds)


def fit_shards(points: Sequence[tuple[int, float]], workers: int) -> tuple[float, float]:
    """Latency in seconds, and bytes a second, of a ring through `workers` that makes the three messages of a unit of so many bytes in these
    seconds: its parameters are gathered for both passes, and its gradients are summed."""
    sizes, seconds = np.array(points).T
    terms = 3 * (workers - 1) * np.stack([np.ones_like(sizes), sizes / workers], axis=1)
    return _fit_latency_and_rate(terms, seconds)


def _fit_latency_and_rate(terms: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    (latency, per_byte), *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones_like(seconds), rcond=None)
    return max(float(latency), 1e-9), 1 / max(float(per_byte), 1e-12)


def time_shards() -> list[tuple[int, float]]:
    """Bytes of a unit, and the seconds by which a step of it takes longer when its parameters are sharded."""
    mesh, points = init_device_mesh("cpu", (dist.get_world_size(),)), []
    for width in _UNIT_WIDTHS:
        rows = torch.rand(_UNIT_ROWS, width)
        model = nn.Sequential(*(nn.Linear(width, width) for _ in range(_UNITS)))

        def step(values: torch.Tensor, model: nn.Module = model) -> None:
            model(values).sum().backward()

        alone = _median_seconds(step, rows, dist.barrier)
        size = sum(parameter.nbytes for parameter in model.parameters()) // _UNITS
        for unit in (*model, model):
            fully_shard(unit, mesh=mesh)
        together = _median_seconds(step, rows, dist.barrier)
        points.append((size, max(together - alone, 1e-9) / _UNITS))
    return points


def _time_all_reduces() -> dict[str, list[tuple[int, float]]]:
    rank, workers = dist.get_rank(), dist.get_world_size()
    blocks = [range(number, number + 1) for number in range(workers)]
    tree = TreeAllReduce(blocks, workers, rank, torch.device("cpu"), max(MESSAGE_BYTES))
    tensors = [torch.zeros(size // 4) for size in MESSAGE_BYTES]
    seconds = {"sockets": [_median_seconds(dist.all_reduce, tensor, dist.barrier) for tensor in tensors]}
    if tree.is_in_memory:
        seconds["memory"] = [_seconds_between_passes(tree, tensor) for tensor in tensors]
    return {name: list(zip(MESSAGE_BYTES, of_sizes, strict=True)) for name, of_sizes in seconds.items()}


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
