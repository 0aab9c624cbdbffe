"""The network of the trainings, and the surroundings in which a worker trains: those of its case, by its number."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.planted.cases import CASES, GROUP, VARIABLE
from pipelines.config import TaskSettings
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.parts import RowGroup
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.tabular import Perceptron, Tabular
from pipelines.train.ordered_all_reduce import TreeAllReduce

RANK = 1
"""The worker whose surroundings differ, where only one worker's do."""
READ_BYTES, LINK_BYTES = 12e6, 60e6
"""Of a second: what a slow disk reads, and what a slow link carries."""
KEPT_COPIES = 100
"""Of each batch."""
TURN_STEPS = 25


class Net(Perceptron):
    turn = 0
    """Part of what torch.compile assumes of the module."""

    def forward(self, batch: Batch) -> Tensor:
        output = super().forward(batch)
        return output if self.turn >= 0 else -output


class Network(Tabular):
    def __init__(self, settings: TaskSettings, data: Data) -> None:
        super().__init__(settings, data)
        self._case = CASES[int(os.environ.get(VARIABLE, "0"))]
        self._steps, self._leaked_tensors = 0, list[Tensor]()

    def model(self) -> nn.Module:
        if dist.is_initialized():  # in a worker, not in the driver
            surround(self._case, dist.get_rank())
        return Net(self.data.features, self.outputs, self.settings, self.target.average)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        self._steps += 1
        if self._case == "memory_leak" and dist.get_rank() == RANK:
            self._leaked_tensors.append(torch.stack([values.float() for values in batch.values()]).repeat(KEPT_COPIES, 1))
        if self._case == "compile_storm":
            model.turn = self._steps // TURN_STEPS  # type: ignore[assignment]
        return super().loss(model, batch)


def surround(case: str, rank: int) -> None:
    """Let this worker train in the surroundings of its case."""
    if case == "data_bound" or (case == "slow_disk" and rank == RANK):
        Reader._bytes = _slower(Reader._bytes, lambda group, source: group.bytes / READ_BYTES)  # type: ignore[method-assign]
    elif case == "slow_cpu" and rank == RANK:
        (Path(os.environ[GROUP]) / "cgroup.procs").write_text(str(os.getpid()))
    elif case == "slow_link":
        TreeAllReduce.reduce = _slower(TreeAllReduce.reduce, _link_seconds)  # type: ignore[method-assign]
    elif case == "compile_storm":
        torch._dynamo.config.recompile_limit = 10_000


def _link_seconds(partial_sums: Sequence[Tensor]) -> float:
    return sum(partial_sum.nbytes for partial_sum in partial_sums) / LINK_BYTES


def _slower(call: Callable[..., Any], seconds: Callable[..., float]) -> Callable[..., Any]:
    """The method, which takes so many seconds longer, by its arguments."""

    def slower(self: Reader | TreeAllReduce, *arguments: RowGroup | Any) -> Any:
        time.sleep(seconds(*arguments))
        return call(self, *arguments)

    return slower
