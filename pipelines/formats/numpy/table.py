"""NumPy: the first axis of the arrays in each file."""

from pipelines.data.sources.arrow_table import ArrowTable
from pipelines.formats.numpy.arrays import ArrayReader
from pipelines.formats.numpy.settings import NumpyTable


class Numpy(ArrowTable[NumpyTable]):
    @property
    def reader(self) -> ArrayReader:
        return ArrayReader()
