"""Measures the loader's shuffle on rows that ETL has not shuffled: sorted by label, compared with a full permutation.

    python -m benchmarks.loader.shuffle_quality [--small] [--results FOLDER]

It prints two tables: statistics of the order, and the loss of a small network that learns from rows in that order.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.order import Epoch
from pipelines.data.versions.plain import open_parquet

CLASSES = 10
BATCH = 512
ROWS_PER_GROUP = 16_384
DIGITS_BATCH = 64


def visit_order(order: Order, group_rows: np.ndarray, epoch: int) -> np.ndarray:
    """Row numbers in the order of training: by step, and within a step by shard."""
    planned = Epoch(order, group_rows, epoch)
    shards = [planned.shard(number) for number in range(order.shards)]
    rows = [np.concatenate([shard.row_numbers(at)[shard.permutation(at)] for at in range(len(shard.windows))]) for shard in shards]
    return np.stack([numbers.reshape(planned.steps, order.microbatch) for numbers in rows], axis=1).ravel()


def shuffle_buffer_order(rows: int, size: int, random: np.random.Generator) -> np.ndarray:
    """The order of a shuffle buffer: whenever it is full, a random half of it is emitted."""
    out, buffer = [], np.arange(size)
    for start in range(size, rows, size // 2):
        buffer = random.permutation(buffer)
        out.append(buffer[: size // 2])
        buffer = np.concatenate([buffer[size // 2 :], np.arange(start, min(start + size // 2, rows))])
    return np.concatenate([*out, random.permutation(buffer)])


def statistics(numbers: np.ndarray, rows: int) -> Row:
    """Statistics of an order of rows sorted by label. For a full permutation each is 1, and the KS distance 0."""
    distance = np.sort(np.abs(np.diff(numbers))) / rows
    expected = 1 - (1 - distance) ** 2  # the triangular distribution: P(|x - y| ≤ d) of two uniform positions
    labels = numbers * CLASSES // rows
    runs = 1 + np.count_nonzero(np.diff(labels))
    batches = labels[: len(labels) // BATCH * BATCH].reshape(-1, BATCH)
    counts = np.stack([(batches == label).sum(axis=1) for label in range(CLASSES)], axis=1)
    chi_square = ((counts - BATCH / CLASSES) ** 2 / (BATCH / CLASSES)).sum(axis=1).mean()
    return {
        "mean distance of neighbours": distance.mean() * 3,
        "KS distance": np.abs(expected - np.linspace(0, 1, len(distance))).max(),
        "label runs": runs / (1 + len(labels) * (1 - 1 / CLASSES)),
        "labels in a batch": (counts > 0).sum(axis=1).mean() / CLASSES,
        "chi² of a batch's labels": chi_square / (CLASSES - 1),
    }


def orders(rows: int) -> list[Row]:
    """Rows sorted by label in row groups of 16,384; 8 shards, batches of 512. A full permutation has 1, and 0 for KS."""
    random = np.random.default_rng(0)
    group_rows = np.full(rows // ROWS_PER_GROUP, ROWS_PER_GROUP)
    rows = int(group_rows.sum())
    row_orders: dict[str, np.ndarray] = {"full permutation": random.permutation(rows)}
    for window in (1, 4, 16, 64):
        row_orders[f"Lockstep, window {window}"] = visit_order(Order(shards=8, global_batch=BATCH, window=window), group_rows, 0)
    for batches in (10, 100):
        row_orders[f"shuffle buffer of {batches} batches"] = shuffle_buffer_order(rows, batches * BATCH, random)
    return [{"order": name, **statistics(numbers, rows)} for name, numbers in row_orders.items()]


def learning(epochs: int, seeds: int) -> list[Row]:
    """Training loss of a small network on digits sorted by label, averaged over seeds; batches of 64."""
    digits = load_digits()
    by_label = np.argsort(digits.target, kind="stable")
    pixels, labels = (digits.data[by_label] / 16).astype(np.float32), digits.target[by_label]

    def full_permutation(seed: int) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
        random = np.random.default_rng(seed)
        return lambda: _batches(pixels, labels, random.permutation(len(labels)))

    def label_order(seed: int) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
        return lambda: _batches(pixels, labels, np.arange(len(labels)))

    with tempfile.TemporaryDirectory() as folder:
        named = {f"pixel_{number}": values for number, values in enumerate(pixels.T)}
        pq.write_table(pa.table({**named, "label": labels}), f"{folder}/sorted.parquet")
        version = open_parquet(folder, "label")

        def loader_order(window: int, seed: int) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
            loader = Loader(version, "train", Order(global_batch=DIGITS_BATCH, seed=seed, window=window))
            return lambda: ((torch.stack([batch[name] for name in named], dim=1), batch["label"]) for batch in loader)

        kinds = {
            "full permutation": full_permutation,
            **{f"Lockstep, window {window}": partial(loader_order, window) for window in (4, 16)},
        }
        kinds["as they lie"] = label_order
        curves = {name: np.mean([_train(kind(seed), epochs, seed) for seed in range(seeds)], axis=0) for name, kind in kinds.items()}
    epochs_in_table = sorted({epoch for epoch in (1, 2, 5, 10, 20) if epoch <= epochs} | {epochs})
    return [{"epoch": epoch, **{name: float(curve[epoch - 1]) for name, curve in curves.items()}} for epoch in epochs_in_table]


def _batches(pixels: np.ndarray, labels: np.ndarray, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in order[: len(order) // DIGITS_BATCH * DIGITS_BATCH].reshape(-1, DIGITS_BATCH):
        yield torch.from_numpy(pixels[rows]), torch.from_numpy(labels[rows])


def _train(epoch_of: Callable[[], Iterator[tuple[Tensor, Tensor]]], epochs: int, seed: int) -> list[float]:
    """Mean loss over all rows after each epoch."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    digits = load_digits()
    every, truth = torch.from_numpy((digits.data / 16).astype(np.float32)), torch.from_numpy(digits.target)
    losses = []
    for _ in range(epochs):
        for pixels, label in epoch_of():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels), label).backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(model(every), truth).item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows, epochs and seeds")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = {
        "orders": orders(2**21 if arguments.small else 2**23),
        "learning": learning(*((2, 1) if arguments.small else (20, 10))),
    }
    for name, table in (("orders", orders), ("learning", learning)):
        show(f"{name}: {table.__doc__}", tables[name])
    print(f"\n{save('shuffle_quality', tables, package_versions('numpy', 'pyarrow', 'torch', 'scikit-learn'), arguments.results)}")


if __name__ == "__main__":
    main()
