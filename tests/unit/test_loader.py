"""The loader: what it yields, where it continues, and how it ends."""

import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from versions import write_version

from pipelines.data.loader import Batch, Loader, Order, shard_range
from pipelines.data.loader.blocks import Block
from pipelines.data.loader.order import Epoch
from pipelines.data.loader.producer import Producer
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError

PARTS = (3_000, 2_500)
STEPS = 11
"""Of an epoch with 512 rows per step."""


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    def part(first: int, rows: int) -> dict[str, np.ndarray]:
        return read_values(np.arange(first, first + rows))

    parts = [part(0, PARTS[0]), part(PARTS[0], PARTS[1])]
    return write_version(tmp_path_factory.mktemp("version"), {"train": parts, "test": [part(0, 700)]}, row_group_bytes=2**19)


def read_values(number: np.ndarray) -> dict[str, np.ndarray]:
    """What rows of these numbers hold: narrow values of one and of several entries, and wide ones."""
    image = number[:, None] * np.arange(1, 13) % 251
    return {
        "number": number,
        "image": image.astype(np.uint8).reshape(-1, 3, 4),
        "token": (number[:, None] * 7 + np.arange(300)).astype(np.uint16),
        "label": np.sqrt(number).astype(np.float32),
    }


def loader_threads() -> set[threading.Thread]:
    """Those of loaders, and no others: other threads of the process come and go."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(("loader", "decode"))}


def numbers(batches: list[Batch]) -> list[list[int]]:
    return [batch["row_number"].tolist() for batch in batches]


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
@pytest.mark.parametrize("remainder", ["drop", "keep"])
def test_p2_a_batch_carries_the_rows_that_its_numbers_say(version: Version, cache_bytes: int, remainder: Literal["drop", "keep"]) -> None:
    loader = Loader(version, "train", Order(global_batch=504, remainder=remainder), row_numbers=True, cache_bytes=cache_bytes)
    for _ in range(2):
        for batch in loader:
            for name, values in read_values(batch["row_number"].numpy()).items():
                assert batch[name].numpy().dtype == values.dtype
                assert np.array_equal(batch[name].numpy(), values)


@pytest.mark.parametrize("remainder", ["drop", "keep"])
@pytest.mark.parametrize("cache_bytes", [0, 2**30])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_p3_a_global_step_has_the_same_rows_for_any_number_of_workers(
    version: Version, remainder: str, cache_bytes: int, world_size: int
) -> None:
    order = Order(global_batch=512, seed=3, remainder=remainder)
    alone = list(Loader(version, "train", order, row_numbers=True))
    loaders = [
        Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True, cache_bytes=cache_bytes)
        for rank in range(world_size)
    ]
    assert {loader.steps_per_epoch for loader in loaders} == {len(alone)}
    together = [[row for batch in step for row in batch["row_number"].tolist()] for step in zip(*loaders, strict=True)]
    assert together == numbers(alone)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stop=st.integers(0, 25), before=st.integers(1, 8), after=st.integers(1, 8), shuffle=st.booleans())
@example(stop=STEPS, before=2, after=3, shuffle=True)  # the end of an epoch
def test_p4_stopped_anywhere_and_resumed_with_another_world_size_nothing_changes(
    version: Version, stop: int, before: int, after: int, shuffle: bool
) -> None:
    order = Order(global_batch=512, seed=1, remainder="keep", shuffle=shuffle)
    loader = Loader(version, "train", order, row_numbers=True)
    assert loader.steps_per_epoch == STEPS
    uninterrupted = numbers([*loader, *loader])

    def steps(world_size: int, state: dict[str, int], count: int) -> tuple[list[list[int]], dict[str, int]]:
        rows_by_step: list[list[int]] = [[] for _ in range(count)]
        for rank in range(world_size):
            worker = Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True)
            worker.load_state_dict(state)
            at = 0
            while at < count:
                for batch in worker:
                    rows_by_step[at] += batch["row_number"].tolist()
                    at += 1
                    if at == count:
                        break
            state_after = worker.state_dict()
        return rows_by_step, state_after if count else state

    first, state = steps(before, {"epoch": 0, "step": 0, "order_version": 1}, stop % len(uninterrupted))
    resumed, _ = steps(after, state, len(uninterrupted) - len(first))
    assert first + resumed == uninterrupted


@pytest.mark.parametrize("step", [0, 4, 9])
def test_p4_a_resume_reads_the_row_groups_of_its_window_and_no_others(version: Version, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    read, decode = [], Reader.read_blocks

    def count_decodes(reader: Reader, number: int, blocks: Sequence[Block]) -> list[np.ndarray]:
        read.append(number)
        return decode(reader, number, blocks)

    monkeypatch.setattr(Reader, "read_blocks", count_decodes)
    order = Order(global_batch=512, window=2)
    loader = Loader(version, "train", order, range(1), cache_bytes=0, prefetch_bytes=1)
    loader.load_state_dict({"epoch": 0, "step": step, "order_version": 1})
    next(iter(loader))
    shard = Epoch(order, Reader(version, "train").group_rows, 0).shard(0)
    window = shard.find(step * order.microbatch)[0]
    assert (window == 0) == (step == 0)
    assert read[:2] == shard.windows[window].group.tolist(), "nothing is read before what the step needs"


def test_p3_threads_prefetch_and_cache_change_nothing(version: Version) -> None:
    order = Order(global_batch=256, seed=2)
    reference = numbers(list(Loader(version, "train", order, row_numbers=True)))
    for cache_bytes, prefetch_bytes, threads in [(0, 1, 1), (0, 2**24, 3), (2**30, 1, 3)]:
        loader = Loader(version, "train", order, row_numbers=True, cache_bytes=cache_bytes, prefetch_bytes=prefetch_bytes, threads=threads)
        assert numbers(list(loader)) == reference


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_p2_memory_is_not_lent_again_while_a_batch_lies_in_it(version: Version, cache_bytes: int) -> None:
    loader = Loader(version, "train", Order(global_batch=64), row_numbers=True, cache_bytes=cache_bytes, prefetch_bytes=2**12)
    last_rows = [{name: values[3] for name, values in batch.items()} for batch in loader]
    as_they_were = [{name: values.clone() for name, values in row.items()} for row in last_rows]
    for _ in range(3):
        assert len(list(loader)) == loader.steps_per_epoch
    assert all(torch.equal(row[name], before[name]) for row, before in zip(last_rows, as_they_were, strict=True) for name in row)


def test_a_shard_alone_gives_its_part_of_every_batch(version: Version) -> None:
    loader = Loader(version, "train", Order(global_batch=512), row_numbers=True)
    expected = numbers(list(loader))
    loader.load_state_dict({"epoch": 0, "step": 0, "order_version": 1})
    assert numbers(list(loader.stream(3))) == [step[3 * 64 : 4 * 64] for step in expected]


def test_p2_evaluation_visits_every_row_once(version: Version) -> None:
    order = Order(global_batch=512, shuffle=False, remainder="keep")
    rows = [
        row for rank in range(3) for batch in Loader(version, "test", order, shard_range(rank, 3, 8)) for row in batch["number"].tolist()
    ]
    assert sorted(rows) == list(range(700))


def test_leaving_early_ends_the_threads_and_keeps_the_position(version: Version) -> None:
    before = loader_threads()
    loader = Loader(version, "train", Order(global_batch=64), prefetch_bytes=2**20)
    for _ in zip(range(3), loader, strict=False):
        pass
    assert loader.state_dict()["step"] == 3
    assert loader_threads() == before


def test_reading_ahead_changes_nothing_and_ends_when_it_is_told_to(version: Version) -> None:
    order = Order(global_batch=512, seed=3)
    plain, ahead = (Loader(version, "train", order, row_numbers=True) for _ in range(2))
    threads = loader_threads()
    for _ in range(2):
        ahead.read_ahead()
        assert numbers(list(ahead)) == numbers(list(plain))
    ahead.read_ahead()
    ahead.load_state_dict({**ahead.state_dict(), "epoch": 0})
    plain.load_state_dict({**plain.state_dict(), "epoch": 0})
    assert numbers(list(ahead)) == numbers(list(plain))
    ahead.read_ahead()
    ahead.close()
    assert loader_threads() == threads


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_closing_ends_also_what_somebody_still_iterates(version: Version, cache_bytes: int) -> None:
    """As the traceback of an error in a step does, and an interactive session that keeps it."""
    # There is room for less than a shard, so that no thread can end by itself.
    loader = Loader(version, "train", Order(global_batch=512), cache_bytes=cache_bytes, prefetch_bytes=2**14)
    threads = loader_threads()
    for iterator in (iter(loader), loader.stream(3)):
        next(iterator)
        assert loader_threads() > threads
        loader.close()
        assert loader_threads() == threads
        with pytest.raises(RuntimeError, match="the producer is closed"):
            list(iterator)


def test_a_producer_that_nobody_has_any_more_ends() -> None:
    def numbers() -> Generator[int, None, None]:
        while True:
            yield 1

    producer = Producer(numbers(), room=2)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "loader"]
    assert producer.take() == 1
    del producer
    assert not thread.is_alive()


LEFT = """
import atexit, sys, threading

def said():
    print(sorted(thread.name for thread in threading.enumerate() if thread.daemon), flush=True)

atexit.register(said)  # runs last
import torch
from pipelines.train.ordered_all_reduce import Background
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.producer import limit_openmp_threads
from pipelines.data.versions.versions import open_version
import pipelines.data.loader.producer

pipelines.data.loader.producer.ThreadpoolController = None  # to look for libraries is not for a thread
loader = Loader(open_version(sys.argv[1]), "train", Order(global_batch=512), cache_bytes=0, prefetch_bytes=2**16)
held, background = iter(loader), Background(torch.device("cpu"))
next(held)
said()
raise KeyError("an error in a step")
"""


def test_no_thread_outlives_a_script_that_an_error_ends(version: Version) -> None:
    """A daemon thread that is inside torch when the interpreter ends aborts the process, or never ends it."""
    process = subprocess.run(
        [sys.executable, "-c", LEFT, Path(version.root).parent], capture_output=True, text=True, check=False, timeout=240
    )
    assert process.stdout.splitlines() == ["['all-reduce', 'decode_0', 'loader']", "[]"], process
    assert process.returncode == 1 and "an error in a step" in process.stderr


def test_p8_an_altered_part_is_an_error_that_names_file_and_row_group(version: Version, tmp_path: Path) -> None:
    damaged = write_version(tmp_path, {"train": [{"label": np.arange(5_000.0)}]}, row_group_bytes=2**13)
    group = damaged.row_groups[2]
    part = Path(damaged.root) / group.file
    content = bytearray(part.read_bytes())
    content[group.footer_offset // 2] ^= 0x10
    part.write_bytes(content)
    threads = loader_threads()
    with pytest.raises(CorruptError, match=rf"{group.file}, row group \d: .*; restore the file"):
        list(Loader(damaged, "train", Order(global_batch=512)))
    assert loader_threads() == threads


@pytest.mark.parametrize("fault", ["missing", "truncated", "swapped", "grown"])
def test_p8_a_part_that_is_not_the_one_written_is_an_error(tmp_path: Path, fault: str) -> None:
    parts = [{"label": np.arange(first, first + 3_000.0)} for first in (0, 3_000)]
    damaged = write_version(tmp_path, {"train": parts}, row_group_bytes=2**13)
    first, second = (Path(damaged.root) / f"data-a/split=train/part-0000{number}.parquet" for number in (0, 1))
    content = first.read_bytes()
    if fault == "missing":
        first.unlink()
    elif fault == "truncated":
        first.write_bytes(content[: len(content) // 2])
    elif fault == "swapped":
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    else:
        first.write_bytes(content + b"\0" * 100)
    with pytest.raises(CorruptError, match=r"part-0000\d.parquet, row group \d: "):
        list(Loader(damaged, "train", Order(global_batch=512)))
