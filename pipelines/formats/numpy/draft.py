"""Reads the arrays of NumPy's files, for `lockstep init`."""

from pipelines.formats.numpy.arrays import ArrayReader
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


def read_numpy(paths: list[str], data: str, _: int | None) -> SampledTable:
    return table_of_batches({"format": "numpy", "path": data}, paths, ArrayReader())


TABLE_KINDS = (TableKind("numpy", (".npy", ".npz"), read_numpy),)
