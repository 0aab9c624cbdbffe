"""Files of a dataset: streams of Arrow's IPC."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.errors import SourceError

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Of a stream. Without it, Arrow would take a file that is cut between two batches for a whole one."""


@dataclass(frozen=True)
class ShardReader:
    """Reads a shard."""

    splits: Mapping[str, str]
    """The split of each shard of a dataset with splits, by path."""
    split_column: str

    def schema(self, path: str) -> pa.Schema:
        with file_errors(path), open_file(path) as stream, pa.ipc.open_stream(stream) as batches:
            schema = batches.schema.remove_metadata()
        if path not in self.splits:
            return schema
        if self.split_column.lower() in map(str.lower, schema.names):
            raise SourceError(f"{path} has a column {self.split_column} of its own; set split_column to another name")
        return schema.append(pa.field(self.split_column, pa.string()))

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with file_errors(path), open_file(path) as stream:
            size = stream.size()
            stream.seek(max(size - len(_END), 0))
            if stream.read() != _END:
                raise SourceError(f"{path} is cut: it ends without the mark of its end; copy it again")
            stream.seek(0)
            with pa.ipc.open_stream(stream) as batches:
                for batch in batches:
                    split = pa.repeat(self.splits.get(path, ""), len(batch))
                    columns = [split if name == self.split_column and path in self.splits else batch[name] for name in names]
                    yield pa.record_batch(columns, names=list(names))
