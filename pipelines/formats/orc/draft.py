"""Reads ORC files with Arrow, for `lockstep init`."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import orc

from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


class OrcReader:
    """Reads a file stripe by stripe."""

    def schema(self, path: str) -> pa.Schema:
        with file_errors(path), open_file(path) as stream:
            return orc.ORCFile(stream).schema

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file_errors(path), open_file(path) as stream:
            file = orc.ORCFile(stream)
            for number in range(file.nstripes):
                yield file.read_stripe(number, columns=list(names)).select(list(names))


def read_orc(paths: list[str], data: str, _: int | None) -> SampledTable:
    return table_of_batches({"format": "orc", "path": data}, paths, OrcReader())


TABLE_KINDS = (TableKind("orc", (".orc",), read_orc),)
