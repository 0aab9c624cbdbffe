"""Measures what dividing a model over processes of this machine adds to a step: small models are trained divided and alone.

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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@dataclass(frozen=True)
class TimedMessages:
    """Seconds that a number of messages, each of so many bytes for a worker, add to a step."""

    message_bytes: float
    messages: int
    seconds: float


_STEPS, _WARM_UP, _ROUNDS = 8, 3, 3
"""Steps of a model in a round, those before them, and rounds, in which both models take turns."""
_LEAST_SHARE = 0.05
"""Of a step alone, that dividing adds at least. A core that is slow for a while makes a difference too small, or negative, and a fit of
relative errors would follow that point alone."""
_COUNTS = (1, 4)
"""Layers of a model, or pairs of them. Two numbers of them tell what a step pays once."""
_UNIT_WIDTHS, _UNIT_ROWS = (8, 64, 256, 1024), 32
"""Widths of the linear layers of a sharded model, and rows of a step."""
_PAIR_WIDTH, _PAIR_ROWS = 128, (8, 128, 1024, 4096)
"""Width of the linear layers that a tensor group divides, and rows of a step."""
_MICROBATCHES, _STAGE_LAYERS, _STAGE_WIDTH, _STAGE_ROWS = (2, 8), 4, 128, (4, 64, 512)
"""Microbatches of a pipeline, linear layers of a stage, their width, and rows of a microbatch."""


def time_shards(widths: Sequence[int] = _UNIT_WIDTHS) -> list[TimedMessages]:
    """Steps of sharded models. A unit, here a layer, takes three messages: it is gathered for both passes, and its gradients are summed."""
    timed, workers, mesh = [], dist.get_world_size(), init_device_mesh("cpu", (dist.get_world_size(),))
    for width, count in product(widths, _COUNTS):
        alone, divided = (_layers(count, width) for _ in range(2))
        unit_bytes = sum(parameter.nbytes for parameter in alone[0].parameters())
        for unit in (*divided, divided):
            fully_shard(unit, mesh=mesh)
        rows = torch.rand(_UNIT_ROWS, width)
        parts = [_first_part(parameter, workers) for parameter in alone.parameters()]
        seconds = _overhead_seconds(_training(alone, rows, parts), _training(divided, rows, is_divided=True))
        timed.append(TimedMessages(unit_bytes * (workers - 1) / workers, 3 * count, seconds))
    return timed


def time_activations(row_counts: Sequence[int] = _PAIR_ROWS) -> list[TimedMessages]:
    """Steps of models that a tensor group has divided. A pair of layers sums activations once forward and once backward, and a sum takes
    two messages: its parts are scattered, and gathered."""
    timed, workers, mesh = [], dist.get_world_size(), init_device_mesh("cpu", (dist.get_world_size(),))
    part = max(1, _PAIR_WIDTH // workers)
    for row_count, count in product(row_counts, _COUNTS):
        alone = nn.Sequential(*(_two_layers(part) for _ in range(count)))
        divided = nn.Sequential(*(_two_layers(part * workers) for _ in range(count)))
        for pair in divided:
            parallelize_module(pair, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        rows = torch.rand(row_count, _PAIR_WIDTH, requires_grad=True)  # so that the first pair sums a gradient too
        seconds = _overhead_seconds(_training(alone, rows), _training(divided, rows, is_divided=True))
        timed.append(TimedMessages(rows.nbytes * (workers - 1) / workers, 4 * count, seconds))
    return timed


def time_microbatches(row_counts: Sequence[int] = _STAGE_ROWS) -> list[TimedMessages]:
    """Steps of pipelines, of two stages where processes can be paired. A stage has a message for every microbatch and direction. The wait
    for the first and the last microbatch is no part of the seconds."""
    timed, workers = [], dist.get_world_size()
    stages = 2 if workers % 2 == 0 else workers
    group = init_device_mesh("cpu", (workers // stages, stages)).get_group(1)
    number = dist.get_rank(group)
    for row_count, count in product(row_counts, _MICROBATCHES):
        microbatches = count * stages // 2
        alone, stage = (_layers(_STAGE_LAYERS, _STAGE_WIDTH) for _ in range(2))
        pipeline_stage = PipelineStage(stage, number, stages, torch.device("cpu"), group=group)
        schedule = Schedule1F1B(pipeline_stage, microbatches, loss_fn=_sum)
        rows = torch.rand(row_count, _STAGE_WIDTH, requires_grad=True)
        batch = torch.rand(microbatches * row_count, _STAGE_WIDTH)

        def pass_on(schedule: Schedule1F1B = schedule, batch: Tensor = batch) -> None:
            schedule.step(*([batch] if number == 0 else []), target=batch if number == stages - 1 else None)

        def compute(model: nn.Module = alone, rows: Tensor = rows, passes: int = microbatches + stages - 1) -> None:
            for _ in range(passes):
                model(rows).sum().backward()

        seconds = _overhead_seconds(_create_step(alone, compute), _create_step(stage, pass_on, is_divided=True))
        timed.append(TimedMessages(rows.nbytes, 2 * (microbatches + stages - 2), seconds))
    return timed


def _sum(output: Tensor, _: Tensor) -> Tensor:
    return output.sum()


def _layers(count: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def _two_layers(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(_PAIR_WIDTH, hidden), nn.Linear(hidden, _PAIR_WIDTH))


def _first_part(parameter: Tensor, parts: int) -> nn.Parameter:
    """A tensor as large as a worker's part of a parameter, with a gradient: an estimate counts the update of parts already."""
    part = nn.Parameter(torch.zeros(-(-parameter.numel() // parts)))
    part.grad = torch.zeros_like(part)
    return part


def _training(model: nn.Module, rows: Tensor, updated: Sequence[Tensor] = (), is_divided: bool = False) -> Callable[[], None]:
    return _create_step(model, lambda: model(rows).sum().backward(), updated, is_divided)


def _create_step(
    model: nn.Module, compute_gradients: Callable[[], None], updated: Sequence[Tensor] = (), is_divided: bool = False
) -> Callable[[], None]:
    """A step as training has it: with an update, of the model's parameters or of others, and with a sum over workers if it is divided."""
    optimizer = torch.optim.AdamW(updated or list(model.parameters()), lr=1e-30, fused=True)

    def step() -> None:
        compute_gradients()
        if is_divided:
            dist.all_reduce(torch.zeros(8, dtype=torch.float64))
        optimizer.step()
        model.zero_grad()

    return step


def _overhead_seconds(alone: Callable[[], None], divided: Callable[[], None]) -> float:
    """By how much longer a divided step takes than one alone, of the slowest process."""
    rounds = [[_step_seconds(step) for step in (alone, divided)] for _ in range(_ROUNDS)]
    seconds = torch.tensor([median(of_rounds) for of_rounds in zip(*rounds, strict=True)])
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    alone_seconds, divided_seconds = seconds.tolist()
    return max(divided_seconds - alone_seconds, _LEAST_SHARE * alone_seconds)


def _step_seconds(step: Callable[[], None]) -> float:
    """Median seconds of steps that follow each other."""
    dist.barrier()
    seconds = []
    for _ in range(_WARM_UP + _STEPS):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return median(seconds[_WARM_UP:])
