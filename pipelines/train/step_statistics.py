"""Sums of each step, read from the device a few steps at a time, and the training curves computed from them."""

import time
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from pipelines.train.step import StepResult

GPU_STEPS_PER_READING = 16
"""Steps between readings: a reading synchronises with the GPU, which then idles for about 0.1 ms."""


@dataclass(frozen=True)
class StepStatistics:
    """A step's result as plain numbers, over all workers unless stated otherwise."""

    number: int
    """The number of the step, counted from 1."""
    grad_norm: float
    """Norm of the mean gradient; -1 if it was not measured."""
    own_loss_sum: float
    """The part of `loss_sum` that this worker computed."""
    loss_sum: float
    weight: float
    rows: float
    save: float
    """Number of workers that requested a save: 1 if rank 0 did."""
    stop: float
    """Number of workers that were asked to stop."""
    written: float
    """Number of workers whose part of the last save is written."""


class PendingSteps:
    """Holds steps' results on the device until a reading is due, at the same steps for every worker."""

    def __init__(self, device: torch.device, gpu_steps_per_reading: int) -> None:
        self.steps_per_reading = gpu_steps_per_reading if device.type == "cuda" else 1
        self.overflows = 0
        """Consecutive steps, up to the last one read, with a gradient that was not finite: fp16 skips such a step."""
        self._results: list[Tensor] = []
        self._last = 0

    def add(self, number: int, result: StepResult) -> list[StepStatistics]:
        """Keep the result of step `number`. Returns all steps kept so far when a reading is due, else none."""
        sums = (result.grad_norm, result.own_loss_sum, result.loss_sum, result.weight, result.rows)
        self._results.append(torch.cat([torch.stack([value.double() for value in sums]), result.flags]))
        self._last = number
        return self.read() if number % self.steps_per_reading == 0 else []

    def read(self) -> list[StepStatistics]:
        """Return the kept steps, in order, and forget them. Waits until the device has finished them."""
        first = self._last - len(self._results) + 1
        rows = torch.stack(self._results).tolist() if self._results else []
        self._results = []
        steps = [StepStatistics(first + index, *values) for index, values in enumerate(rows)]
        for step in steps:
            self.overflows = 0 if isfinite(step.grad_norm) else self.overflows + 1
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


class Stopwatch:
    """Measures the time of steps, and how much of it they waited for data."""

    def __init__(self) -> None:
        self._started = self._waited = 0.0

    def start(self, waited: float) -> None:
        """Begin a lap; `waited` is the total time that the loader has waited so far, in seconds."""
        self._started, self._waited = time.perf_counter(), waited

    def lap(self, waited: float) -> tuple[float, float]:
        """End the lap and begin the next. Returns its seconds, and how many of them were spent waiting for data."""
        started, before = self._started, self._waited
        self.start(waited)
        return self._started - started, waited - before


def steps_per_point(total_steps: int, steps_per_reading: int) -> int:
    """Steps between two points of the training curves: a function of the config, so that interruptions do not move them.

    There are about 250 points per run, at least one every 100 steps, each at a reading.
    """
    stride = min(100, max(1, total_steps // 250))
    return -(-stride // steps_per_reading) * steps_per_reading
