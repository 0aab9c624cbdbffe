"""What a step pays for a model that processes of this machine have divided: small models, trained divided and alone.

Steps follow each other as in training, so that a difference has all that dividing brings: messages whose receiver must get a core first,
caches that a pass has filled, and torch's work for every tensor that is divided.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from pipelines.train.dtensor import is_dtensor

@dataclass(frozen=True)
class TimedExchange:
    """By how many seconds a step takes longer that exchanges something of so many bytes so many times."""

    size: int
    count: int
    seconds: float


_STEPS, _WARM_UP, _ROUNDS = 12, 3, 2
"""Steps of a model in a round, those before them, and rounds, in which models take turns."""
_COUNTS = (1, 4)
"""Layers of a model, or pairs of them, that processes have divided. Two numbers of them tell what a step pays once."""
_UNIT_WIDTHS, _UNIT_ROWS = (8, 64, 256, 1024), 32
"""Widths of the linear layers of a sharded model, and rows of a step."""
_PAIR_WIDTH, _PAIR_ROWS = 128, (8, 128, 1024, 4096)
"""Width of the linear layers that a tensor group divides, and rows of a step."""
_MICROBATCHES, _STAGE_LAYERS, _STAGE_WIDTH, _STAGE_ROWS = (2, 8), 4, 128, (4, 64, 512)
"""Microbatches of a pipeline, linear layers of a stage, their width, and rows of a microbatch."""


def time_shards(widths: Sequence[int] = _UNIT_WIDTHS) -> list[TimedExchange]:
    """Steps of sharded models: an exchange is all that a unit sends, of so many bytes of parameters."""
    exchanges = []
    for width, count in product(widths, _COUNTS):
        alone, divided = (_layers(count, width) for _ in range(2))
        for unit in (*divided, divided):
            fully_shard(unit, mesh=_mesh())
        rows = torch.rand(_UNIT_ROWS, width)
        size = sum(parameter.nbytes for parameter in alone.parameters()) // count
        exchanges.append(TimedExchange(size, count, _further_seconds(_training(alone, rows), _training(divided, rows))))
    return exchanges


def time_activations(row_counts: Sequence[int] = _PAIR_ROWS) -> list[TimedExchange]:
    """Steps of models that a tensor group has divided: an exchange is a sum over the group, forward or backward."""
    exchanges, width = [], _PAIR_WIDTH
    for row_count, count in product(row_counts, _COUNTS):
        alone = nn.Sequential(*(_pair(width, width // dist.get_world_size()) for _ in range(count)))
        divided = nn.Sequential(*(_pair(width, width) for _ in range(count)))
        for pair in divided:
            parallelize_module(pair, _mesh(), {"0": ColwiseParallel(), "1": RowwiseParallel()})
        rows = torch.rand(row_count, width, requires_grad=True)  # so that the first pair sums a gradient too
        exchanges.append(TimedExchange(rows.nbytes, 2 * count, _further_seconds(_training(alone, rows), _training(divided, rows))))
    return exchanges


def time_microbatches(row_counts: Sequence[int] = _STAGE_ROWS) -> list[TimedExchange]:
    """Steps of pipelines: an exchange is a message of a stage, one for every microbatch and direction. The wait for the first and the last
    microbatch is no part of the seconds."""
    exchanges, stages, place = [], dist.get_world_size(), dist.get_rank()
    for row_count, count in product(row_counts, _MICROBATCHES):
        microbatches = count * stages // 2
        alone, stage = (_layers(_STAGE_LAYERS, _STAGE_WIDTH) for _ in range(2))
        schedule = Schedule1F1B(PipelineStage(stage, place, stages, torch.device("cpu")), microbatches, loss_fn=_sum)
        rows = torch.rand(row_count, _STAGE_WIDTH, requires_grad=True)
        batch = torch.rand(microbatches * row_count, _STAGE_WIDTH)

        def pass_on(schedule: Schedule1F1B = schedule, batch: Tensor = batch) -> None:
            schedule.step(*([batch] if place == 0 else []), target=batch if place == stages - 1 else None)

        def compute(model: nn.Module = alone, rows: Tensor = rows, passes: int = microbatches + stages - 1) -> None:
            for _ in range(passes):
                model(rows).sum().backward()

        seconds = _further_seconds(_with_update(alone, compute), _with_update(stage, pass_on, is_divided=True))
        exchanges.append(TimedExchange(rows.nbytes, 2 * (microbatches + stages - 2), seconds))
    return exchanges


def _sum(output: Tensor, _: Tensor) -> Tensor:
    return output.sum()


def _mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def _layers(count: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def _pair(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.Linear(hidden, width))


def _training(model: nn.Module, rows: Tensor) -> Callable[[], None]:
    is_divided = any(is_dtensor(parameter) for parameter in model.parameters())
    return _with_update(model, lambda: model(rows).sum().backward(), is_divided)


def _with_update(model: nn.Module, compute_gradients: Callable[[], None], is_divided: bool = False) -> Callable[[], None]:
    """A step as training has it: with an update, and with a sum over workers if the model is divided."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-30, fused=True)

    def step() -> None:
        compute_gradients()
        if is_divided:
            dist.all_reduce(torch.zeros(8, dtype=torch.float64))
        optimizer.step()
        optimizer.zero_grad()

    return step


def _further_seconds(alone: Callable[[], None], divided: Callable[[], None]) -> float:
    """By how much longer a divided step takes than one alone, of the slowest process."""
    seconds = torch.tensor([median(rounds) for rounds in zip(*(_time_steps([alone, divided]) for _ in range(_ROUNDS)), strict=True)])
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return max(float(seconds[1] - seconds[0]), 1e-9)


def _time_steps(steps: Sequence[Callable[[], None]]) -> list[float]:
    """Median seconds of each of these steps, of which one kind follows the other."""
    medians = []
    for step in steps:
        dist.barrier()
        seconds = []
        for _ in range(_WARM_UP + _STEPS):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        medians.append(median(seconds[_WARM_UP:]))
    return medians
