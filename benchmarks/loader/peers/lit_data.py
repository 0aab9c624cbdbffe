"""LitData, on its own format and on Parquet."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset, index_parquet_dataset, optimize
from litdata.streaming.item_loader import ParquetLoader

from benchmarks.loader.measure import Peer, run_peers
from benchmarks.loader.rows import iterate_rows, part_files, row_groups


def batches(path: str, batch: int, start: int | None) -> Iterable[Any]:
    """Reads in this process: two DataLoader workers on two cores were measured to halve the rate of narrow rows."""
    dataset = StreamingDataset(path, shuffle=True, item_loader=ParquetLoader() if part_files(path) else None)
    loader = StreamingDataLoader(dataset, batch_size=batch)
    if start is not None:
        state = dataset.state_dict(start, 0, batch)
        loader.load_state_dict({"dataset": state, "current_epoch": 1, "num_samples_yielded": start, "latest_worker_idx": 0})
    return loader


def to_chunks(source: str, target: str, rows: int | None) -> None:
    optimize(iterate_rows, row_groups(source, rows), target, chunk_bytes="64MB", num_workers=1, start_method="spawn", verbose=False)


def to_index(source: str, target: str, rows: int | None) -> None:
    """Copy the files into one folder, and write an index there."""
    for file in dict.fromkeys(file for file, _ in row_groups(source, rows)):
        shutil.copy(file, Path(target))
    index_parquet_dataset(target)


if __name__ == "__main__":
    run_peers(
        {
            "LitData": Peer(batches, to_chunks, lambda path, batch, rows: rows),
            "LitData, Parquet": Peer(batches, to_index, lambda path, batch, rows: rows),
        }
    )
