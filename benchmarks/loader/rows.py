"""The rows that all loaders are measured on: generating them, and reading them from our part files for a peer's converter."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FLOATS, WHOLE = 13, 26
PARTS = 4


@dataclass(frozen=True)
class Kind:
    """The rows of one table."""

    shape: tuple[int, ...]
    """Shape of the tensor column; empty for the narrow rows, which have only scalars."""
    dtype: str
    rows: int
    small_rows: int
    batch: int
    row_group_bytes: int
    """Small enough for 16 row groups per shard, so that no group is sliced: without a cache, each slice decodes the whole group."""

    @property
    def row_bytes(self) -> int:
        """Size of a decoded row; the label is one byte."""
        return (np.dtype(self.dtype).itemsize * prod(self.shape) if self.shape else 4 * (FLOATS + WHOLE)) + 1


KINDS = {
    "narrow": Kind((), "", 4_000_000, 100_000, 4_096, 2**22),
    "image 28x28": Kind((28, 28), "uint8", 200_000, 10_000, 1_024, 2**20),
    "image 3x224x224": Kind((3, 224, 224), "uint8", 4_000, 64, 64, 2**22),
    "tokens int32": Kind((1_024,), "int32", 40_000, 2_000, 512, 2**20),
    "tokens uint16": Kind((1_024,), "uint16", 80_000, 2_000, 512, 2**20),
}


def part(kind: str, random: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """One part of a table's rows."""
    label = random.integers(0, 2, rows, np.uint8)
    if kind == "narrow":
        floats = {f"float_{number}": random.standard_normal(rows, np.float32) for number in range(FLOATS)}
        distinct = np.geomspace(4, 200_000, WHOLE).astype(int)
        # Frequent and rare values, like the indices of categories, whose frequencies fall about as fast as a cube's.
        integers = {f"int_{at}": (random.random(rows, np.float32) ** 3 * count).astype(np.int32) for at, count in enumerate(distinct)}
        return {**floats, **integers, "label": label}
    shape, dtype = KINDS[kind].shape, KINDS[kind].dtype
    top = 256 if dtype == "uint8" else 50_000
    return {"values": random.integers(0, top, (rows, *shape), dtype), "label": label}


def part_files(folder: str) -> list[str]:
    return sorted(str(file) for file in Path(folder).rglob("part-*.parquet"))


def arrays(file: str, group: int) -> dict[str, np.ndarray]:
    """A row group's columns as arrays. Those of the narrow rows are stacked by dtype, which saves row-wise formats most work."""
    table = pq.ParquetFile(file).read_row_group(group)
    label = table.column("label").to_numpy()
    if "values" in table.column_names:
        column = table.column("values").combine_chunks()
        metadata = table.schema.field("values").metadata
        shape = [int(size) for size in metadata[b"shape"].split(b",")]
        values = np.frombuffer(column.buffers()[1], metadata[b"dtype"].decode(), offset=column.offset * column.type.byte_width)
        return {"values": values[: len(label) * int(np.prod(shape))].reshape(-1, *shape), "label": label}
    named = {name: table.column(name).to_numpy() for name in table.column_names}
    floats = np.stack([values for name, values in named.items() if name.startswith("float_")], axis=1)
    integers = np.stack([values for name, values in named.items() if name.startswith("int_")], axis=1)
    return {"floats": floats, "ints": integers, "label": label}


def row_groups(folder: str, rows: int | None = None) -> list[tuple[str, int]]:
    """File and index of the folder's row groups; if `rows` is given, only the first ones, with at least so many rows."""
    groups, rows_so_far = [], 0
    for file in part_files(folder):
        footer = pq.read_metadata(file)
        for group in range(footer.num_row_groups):
            if rows is None or rows_so_far < rows:
                groups.append((file, group))
                rows_so_far += footer.row_group(group).num_rows
    return groups


def iterate_rows(place: tuple[str, int]) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a row group, one by one."""
    columns = arrays(*place)
    for row in range(len(columns["label"])):
        yield {name: values[row] for name, values in columns.items()}


def write_lists(source: str, target: str) -> dict[str, float]:
    """Write tensors as fixed-size lists in Parquet, the form that Ray Data and Hugging Face read."""
    started = time.perf_counter()
    Path(target).mkdir()
    for number, place in enumerate(row_groups(source)):
        columns = arrays(*place)
        flat = columns["values"].reshape(len(columns["label"]), -1)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
        pq.write_table(pa.table({"values": lists, "label": columns["label"]}), f"{target}/part-{number:05}.parquet")
    return {"seconds": time.perf_counter() - started}
