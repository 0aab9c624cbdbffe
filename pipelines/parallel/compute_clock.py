"""Measures how long a worker computes in each step, without the time that it waits for other workers."""

import time
from collections.abc import Callable
from typing import Any

import torch

GPU_STEPS_PER_MEASUREMENT = 16
"""On a GPU, one of so many steps is measured, since the clock waits for the kernels before it is read."""

Hook = Callable[[Any, Any], Any]
"""A communication hook of DistributedDataParallel: called with its state and a bucket of gradients, it returns a future."""


class ComputeClock:
    """The mean seconds of computation per step. A step begins with `start` and its computation ends with the last `stop`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._is_gpu = device, device.type == "cuda"
        self._measures = False
        self._started = self._waited = self._last = self._seconds = 0.0
        self._steps = 0

    def start(self, number: int) -> None:
        """Step `number` of the run begins."""
        self._count_last()
        self._measures = not self._is_gpu or number % GPU_STEPS_PER_MEASUREMENT == 0
        if self._measures:
            self._started, self._waited = self._now(), 0.0

    def stop(self) -> None:
        """The step has computed until now; it may compute more, and stop again."""
        if self._measures:
            self._last = self._now() - self._started - self._waited

    def around(self, hook: Hook) -> Hook:
        """The same hook, whose time counts as waiting: gradients that arrive in it are computed."""

        def timed(state: Any, bucket: Any) -> Any:
            self.stop()
            called = time.perf_counter()
            future = hook(state, bucket)
            self._waited += time.perf_counter() - called
            return future

        # torch checks the annotations of a hook.
        timed.__annotations__ = dict(hook.__annotations__)
        return timed

    def take(self) -> float:
        """The mean seconds of computation per measured step since the last call; 0 if there was none."""
        self._count_last()
        mean = self._seconds / self._steps if self._steps else 0.0
        self._seconds, self._steps = 0.0, 0
        return mean

    def _count_last(self) -> None:
        if self._measures:
            self._seconds, self._steps, self._measures = self._seconds + self._last, self._steps + 1, False

    def _now(self) -> float:
        if self._is_gpu:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
