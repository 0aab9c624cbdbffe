"""Tests on a GPU. Where torch can use none, they are skipped."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pipelines.train.exact.exact import CUBLAS
from pipelines.train.workers import WorkerContext

for name, value in CUBLAS.items():
    os.environ.setdefault(name, value)  # read when CUDA starts, which is before a strategy is created


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.skip(reason="torch can use no GPU on this machine"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.fixture(scope="module")
def context(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerContext]:
    """A worker alone in a process group as Ray Train makes it: over NCCL for the GPU, over Gloo for the CPU."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path_factory.mktemp('group')}/meet", rank=0, world_size=1)
    yield WorkerContext(0, 1, device)
    dist.destroy_process_group()
    torch.use_deterministic_algorithms(False)  # as strategy `exact` has set it
