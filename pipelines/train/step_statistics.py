"""The flags that workers attach to an optimizer step, and its result; sums of each step, read from the device a few steps at a time, and
the training curves computed from them. NaN and infinite values are rejected at the step where they occur, so that they are never saved."""

from dataclasses import astuple, dataclass, fields
from math import isfinite

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.config.train.train import Train
from pipelines.errors import NonFiniteError
from pipelines.train.workers import Mesh, all_gather_object, waits_for_workers

GPU_STEPS_PER_READING = 16
"""Steps between readings: a reading synchronises with the GPU, which then idles for about 0.1 ms."""
SLOW_STEP_SECONDS = 1 / 32
"""Longer steps are all read, which costs at most 0.3 % of them: requests to save or to stop would else wait for up to 16 steps."""
REMEDY = "the last complete checkpoint is kept; lower train.lr, set train.clip_norm, or correct the rows"
MOST_OVERFLOWS = 50
"""fp16 halves its loss scale, initially 65,536, at every overflow: after this many the scale is not the cause."""


@dataclass(frozen=True)
class Flags:
    """Flags of a worker at a step. The step's all-reduce also counts how many workers set each of them."""

    save: bool = False
    """The state should be saved; only rank 0 sets it."""
    stop: bool = False
    """The worker was asked to stop."""
    written: bool = False
    """The worker's part of the last save is written."""
    slow: bool = False
    """The worker's steps take so long that the result of each should be read at once."""

    def numbers(self) -> list[float]:
        return [float(flag) for flag in astuple(self)]


FLAGS = len(fields(Flags))


@dataclass(frozen=True)
class StepResult:
    """A step's sums, over all workers unless stated otherwise: scalar tensors on the device, valid until the next step."""

    grad_norm: Tensor
    """The norm of the mean gradient before clipping; -1 if it was not computed."""
    own_loss_sum: Tensor
    """The part of `loss_sum` that this worker computed."""
    loss_sum: Tensor
    weight: Tensor
    """The divisor that turns the sum of losses into their mean."""
    rows: Tensor
    flags: Tensor
    """The number of workers that set each of `Flags`, in its order: shape (FLAGS,)."""


def gather_replicas(numbers: Tensor, played: range, replicas: int, flags: Flags) -> tuple[Tensor, Tensor]:
    """The numbers of all replicas, of which this worker's are `numbers`, shape (len(played), n); and sums over workers of flags: shapes
    (replicas, n) and (FLAGS,). Collective.

    Every worker gets the same bits: an all-reduce adds each replica's numbers to zeros. Workers of one replica add up theirs.
    """
    table = numbers.new_zeros(replicas, numbers.shape[1])
    table[played.start : played.stop] = numbers
    sums = torch.cat([table.flatten(), torch.tensor(flags.numbers(), dtype=numbers.dtype).to(numbers.device, non_blocking=True)])
    if dist.is_initialized():
        dist.all_reduce(sums)
    by_replica, flag_counts = sums.split([table.numel(), FLAGS])
    return by_replica.view_as(table), flag_counts


@dataclass(frozen=True)
class StepStatistics:
    """A step's result and flags as plain numbers: as StepResult has them, and how many workers set each of Flags."""

    number: int
    """The number of the step, counted from 1."""
    grad_norm: float
    own_loss_sum: float
    loss_sum: float
    weight: float
    rows: float
    save: float
    stop: float
    written: float
    slow: float = 0.0


@waits_for_workers
def _read_after_others(results: Tensor) -> list[list[float]]:
    """Over NCCL, it is here that the host waits for the other workers: collectives only queue."""
    return results.tolist()


class PendingSteps:
    """Holds steps' results on the device until a reading is due, at the same steps for every worker: what is read decides how soon the
    next reading comes."""

    def __init__(self, device: torch.device, gpu_steps_per_reading: int) -> None:
        self.steps_per_reading = gpu_steps_per_reading if device.type == "cuda" else 1
        """There is a reading at every multiple of this, however long steps take."""
        self._is_slow = True  # until the first steps have shown how long they take
        self.overflows = 0
        """Consecutive steps, up to the last one read, with a gradient that was not finite: fp16 skips such a step."""
        self._results: list[Tensor] = []

    def add(self, number: int, result: StepResult, is_due: bool) -> list[StepStatistics]:
        """Keep the result of step `number`. Returns none, or, when a reading is due, for whatever reason, the kept steps in order: then it
        waits until the device has finished them."""
        sums = (result.grad_norm, result.own_loss_sum, result.loss_sum, result.weight, result.rows)
        self._results.append(torch.cat([torch.stack([value.double() for value in sums]), result.flags]))
        if not (is_due or self._is_slow or number % self.steps_per_reading == 0):
            return []
        first, results, self._results = number - len(self._results) + 1, torch.stack(self._results), []
        has_others = dist.is_initialized() and dist.get_world_size() > 1
        values_by_step = _read_after_others(results) if has_others else results.tolist()
        steps = [StepStatistics(first + index, *values) for index, values in enumerate(values_by_step)]
        for step in steps:
            self.overflows = 0 if isfinite(step.grad_norm) else self.overflows + 1
            self._is_slow = step.slow > 0
        return steps


@dataclass
class CurveWindow:
    """Sums since the last point of the training curves."""

    steps: int = 0
    rows: float = 0.0
    loss: float = 0.0
    weight: float = 0.0
    grad_norm: float = 0.0
    measured: int = 0
    """Steps whose gradient's norm is in the sum."""
    skipped: int = 0
    """Steps that the fp16 scaler skipped because a gradient overflowed."""
    seconds: float = 0.0
    waited: float = 0.0
    """Seconds that rank 0 waited for data."""

    def add(self, step: StepStatistics) -> None:
        self.steps += 1
        self.rows += step.rows
        self.loss += step.loss_sum
        self.weight += step.weight
        if not isfinite(step.grad_norm):
            self.skipped += 1
        elif step.grad_norm >= 0:
            self.grad_norm += step.grad_norm
            self.measured += 1

    def metrics(self) -> dict[str, float]:
        """Means over the window, named as in MLflow."""
        metrics = {}
        if self.weight:
            metrics["train/loss"] = self.loss / self.weight
        if self.measured:
            metrics["train/grad_norm"] = self.grad_norm / self.measured
        if self.skipped:
            metrics["train/skipped_steps"] = float(self.skipped)
        if self.seconds:
            metrics["train/rows_per_second"] = self.rows / self.seconds
            metrics["train/step_seconds"] = self.seconds / self.steps
            metrics["train/data_wait_fraction"] = self.waited / self.seconds
        return metrics


def steps_per_point(total_steps: int, steps_per_reading: int) -> int:
    """Steps between two points of the training curves: a function of the config, so that interruptions do not move them.

    There are about 250 points per run, at least one every 100 steps, each at a reading.
    """
    stride = min(100, max(1, total_steps // 250))
    return -(-stride // steps_per_reading) * steps_per_reading


def check_step(step: StepStatistics, mesh: Mesh, settings: Train, overflows: int) -> None:
    """Raise NonFiniteError, on all workers alike, if the step's loss or gradient norm is not finite.

    With fp16 loss scaling a non-finite gradient is an overflow, and the step is skipped. That becomes an error only after
    MOST_OVERFLOWS consecutive `overflows`.
    """
    has_loss_scale = settings.precision == "fp16"
    if isfinite(step.loss_sum) and (isfinite(step.grad_norm) or (has_loss_scale and overflows <= MOST_OVERFLOWS)):
        return
    if isfinite(step.loss_sum):
        raise NonFiniteError(f"step {step.number}: the gradient norm is {step.grad_norm}, although the loss is finite: {REMEDY}")
    losses = all_gather_object(step.own_loss_sum)
    blocks = zip(mesh.first_ranks, mesh.shards_by_replica(settings.shards), strict=True)
    wrong = [(rank, block) for rank, block in blocks if not isfinite(losses[rank])]
    has_shards = settings.strategy.reads_in_order
    where = ", ".join(f"worker {rank}{f' (shards {block.start} to {block.stop - 1})' if has_shards else ''}" for rank, block in wrong)
    raise NonFiniteError(f"step {step.number}: the loss is {step.loss_sum}, from {where or 'the sum over workers'}: {REMEDY}")
