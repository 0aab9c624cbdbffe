"""The loader's batches on a GPU: those of the CPU, whether the split is cached there or copied chunk by chunk."""

import threading
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from versions import write_version

from pipelines.data.loader import Batch, Loader, Order
from pipelines.data.versions.versions import Version

ORDER = Order(global_batch=504, remainder="keep")
ROWS = 5_500


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Narrow values of one and of several entries, and wide ones, in several row groups."""
    number = np.arange(ROWS)
    columns = {
        "number": number,
        "image": (number[:, None] * np.arange(1, 13) % 251).astype(np.uint8).reshape(-1, 3, 4),
        "token": (number[:, None] * 7 + np.arange(300)).astype(np.uint16),
        "flag": (number % 3 == 0).astype(np.int8),
        "label": np.sqrt(number).astype(np.float32),
    }
    return write_version(tmp_path_factory.mktemp("version"), {"train": [columns]}, row_group_bytes=2**19)


def assert_same(actual: Batch, expected: Batch) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].dtype == values.dtype, name
        assert torch.equal(actual[name].cpu(), values), name


@pytest.mark.parametrize("cache_bytes", [0, 2**30], ids=["copied", "cached"])
@pytest.mark.parametrize("threads", [1, 4])
def test_p2_two_epochs_are_those_of_the_cpu(version: Version, device: torch.device, cache_bytes: int, threads: int) -> None:
    expected = Loader(version, "train", ORDER, row_keys=True)
    loader = Loader(version, "train", ORDER, row_keys=True, device=device, cache_bytes=cache_bytes, threads=threads)
    for _ in range(2):
        for batch, other in zip(loader, expected, strict=True):
            assert all(values.device == device for values in batch.values())
            assert_same(batch, other)


@pytest.mark.parametrize("cache_bytes", [0, 2**30], ids=["copied", "cached"])
def test_p4_it_resumes_within_an_epoch(version: Version, device: torch.device, cache_bytes: int) -> None:
    expected = list(Loader(version, "train", ORDER))
    loader = Loader(version, "train", ORDER, device=device, cache_bytes=cache_bytes)
    loader.load_state_dict({**loader.state_dict(), "step": 4})
    for batch, other in zip(loader, expected[4:], strict=True):
        assert_same(batch, other)


@pytest.mark.parametrize("cache_bytes", [0, 2**30], ids=["copied", "cached"])
def test_a_step_that_is_still_running_keeps_its_rows(version: Version, device: torch.device, cache_bytes: int) -> None:
    """The GPU works long on each step while the host goes on: no memory of a batch may be reused before the step has read it."""
    order = Order(global_batch=64)
    expected = Loader(version, "train", order, row_numbers=True)
    loader = Loader(version, "train", order, row_numbers=True, device=device, cache_bytes=cache_bytes, prefetch_bytes=2**20)
    work = torch.randn(2_048, 2_048, device=device)
    copies = []
    for batch in chain.from_iterable(loader for _ in range(3)):
        for _ in range(8):
            work = torch.nn.functional.normalize(work @ work)
        copies.append({name: values.clone() for name, values in batch.items()})
        del batch
    for batch, other in zip(copies, chain.from_iterable(expected for _ in range(3)), strict=True):
        assert_same(batch, other)


def test_an_iteration_that_is_left_early_ends_its_threads(version: Version, device: torch.device, tmp_path: Path) -> None:
    loader = Loader(version, "train", Order(global_batch=64), device=device, cache_bytes=0)
    first = [{name: values.cpu() for name, values in batch.items()} for batch in islice(loader, 3)]
    loader.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("loader", "decode"))]
    for batch, other in zip(first, Loader(version, "train", Order(global_batch=64)), strict=False):
        assert_same(batch, other)
