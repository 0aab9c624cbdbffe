"""The measurements of Lockstep for benchmarks/loader/against_peers.py, and those of bare decode and a hand-written loader."""

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset
from versions import write_version

from benchmarks.loader import rows as made
from benchmarks.loader.measure import CORES, Result, first_batch, pace, rows_in, run
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.batches import Memory, Windows
from pipelines.data.loader.order import Epoch
from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit
from pipelines.data.versions.manifest import content_digest
from pipelines.data.versions.versions import open_version

SHARDS = 8
SECONDS = 4.0
"""Least time over which later epochs are measured: a few epochs of 0.04 s say little on a shared machine."""


def write(kind: str, folder: str, rows: int, row_group_bytes: int) -> Result:
    """Write the rows as a version, in PARTS parts, as `jobs/etl.py` would: with LZ4, checksums and digests of row groups."""
    parts = [made.part(kind, np.random.default_rng(number), rows // made.PARTS) for number in range(made.PARTS)]
    version = write_version(folder, {"train": parts}, row_group_bytes=row_group_bytes)
    return {"row_groups": len(version.row_groups), "bytes": sum(group.bytes for group in version.row_groups)}


def _loader(folder: str, batch: int, **settings: Any) -> Loader:
    return Loader(open_version(folder), "train", Order(shards=SHARDS, global_batch=batch), threads=CORES, **settings)


def epochs(folder: str, batch: int, cache: bool) -> Result:
    """Rows per second of the first epoch, in newly allocated memory, and of later ones."""
    loader = _loader(folder, batch, **({} if cache else {"cache_bytes": 0}))
    first, later = _rates(lambda: sum(rows_in(rows) for rows in loader))
    return {"first": first, "later": later, "rows": loader.rows}


def bare(folder: str) -> Result:
    """The decoding rate of the same files: whole row groups, without page checksums, shuffling and batches."""
    groups = made.row_groups(folder)
    footers = {file: pq.read_metadata(file) for file, _ in groups}

    def decode(place: tuple[str, int]) -> int:
        file, group = place
        return pq.ParquetFile(file, metadata=footers[file], pre_buffer=False).read_row_group(group, use_threads=False).num_rows

    with ThreadPoolExecutor(CORES) as pool:
        return {"rows_per_second": _rates(lambda: sum(pool.map(decode, groups)))[1]}


def _rates(epoch: Callable[[], int]) -> tuple[float, float]:
    """Rows per second of the first epoch, and the median of later ones: at least three, and as many as take SECONDS."""
    rates: list[float] = []
    begun = time.perf_counter()
    while len(rates) < 4 or time.perf_counter() - begun < SECONDS:
        started = time.perf_counter()
        rows = epoch()
        rates.append(rows / (time.perf_counter() - started))
    return rates[0], statistics.median(rates[1:])


class ParquetRows(IterableDataset):
    """A loader that one writes in ten minutes: batches in the order of the files, as zero-copy views of what Arrow decodes."""

    def __init__(self, folder: str, batch: int) -> None:
        self.files, self.batch = made.part_files(folder), batch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for file in self.files:
            for batch in pq.ParquetFile(file).iter_batches(self.batch):
                yield {name: torch.from_dlpack(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def iterable(folder: str, batch: int, seconds: float) -> Result:
    return pace(DataLoader(ParquetRows(folder, batch), batch_size=None), seconds)


def iterable_resume(folder: str, batch: int, skip: int) -> Result:
    return first_batch(lambda: DataLoader(ParquetRows(folder, batch), batch_size=None), skip)


def resume(folder: str, batch: int, share: float) -> Result:
    def open_batches() -> Loader:
        loader = _loader(folder, batch)
        loader.load_state_dict({**loader.state_dict(), "step": int(share * loader.steps_per_epoch)})
        return loader

    return first_batch(open_batches)


def memory(folder: str, batch: int, rows: int) -> Result:
    """Growth of the process's memory over epochs of `rows` rows in total, without a cache, and the bound that the loader states."""
    loader = _loader(folder, batch, cache_bytes=0, prefetch_bytes=2**25)
    before = _peak_bytes()
    for _ in range(max(1, rows // loader.rows)):
        for _ in loader:
            pass
    return {"peak_bytes": _peak_bytes() - before, "bound_bytes": loader.memory_bound_bytes}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def planning(row_groups: int, share: float) -> Result:
    """Seconds of each part of a start inside an epoch, with `row_groups` row groups of about 100,000 rows; nothing is decoded."""
    with tempfile.TemporaryDirectory() as folder:
        write("narrow", f"{folder}/one", 4_096, 2**24)
        version = open_version(f"{folder}/one")
        group, sizes = version.row_groups[0], np.random.default_rng(0).integers(50_000, 150_000, row_groups)
        groups = [replace(group, index=number, rows=int(rows)) for number, rows in enumerate(sizes)]
        train = version.manifest.splits["train"].model_copy(update={"rows": int(sizes.sum()), "row_groups": row_groups})
        digest = content_digest(version.manifest.encoders, groups)
        filesystem, root = storage.locate(f"{folder}/many")
        storage.make_folder(filesystem, root)
        commit(filesystem, root, version.manifest.model_copy(update={"digest": digest, "splits": {"train": train}}), groups)
        opening, _ = _time_call(lambda: open_version(f"{folder}/many").split_row_groups("train"))
    planned, (epoch, shards) = _time_call(lambda: _plan(sizes))
    position = int(share * epoch.steps) * epoch.order.microbatch
    reader: Any = SimpleNamespace(row_bytes=group.bytes // group.rows, columns=())
    memory = Memory(reader, row_numbers=False, device=torch.device("cpu"), cached=False)
    placed, windows = _time_call(lambda: Windows(reader, memory, shards, position, ahead_bytes=0, threads=1))
    windows.close()
    return {"open_seconds": opening, "plan_seconds": planned, "place_seconds": placed}


def _plan(sizes: np.ndarray) -> tuple[Epoch, dict[int, Any]]:
    epoch = Epoch(Order(shards=SHARDS, global_batch=4_096), sizes, 0)
    return epoch, {number: epoch.shard(number) for number in range(SHARDS)}


def _time_call(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    run(write, made.write_lists, epochs, bare, iterable, iterable_resume, resume, memory, planning)
