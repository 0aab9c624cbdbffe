"""Part files: a split's rows in Parquet, in row groups that are digested as they are written."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from pipelines.dataset.schema import TensorColumn, arrow_schema, to_numpy

ROWS_PER_GROUP = (64, 262_144)
"""Below, a row group's overhead shows; above, nothing is gained. An image of 3x224x224 fills 16 MiB with 111 rows."""


@dataclass(frozen=True)
class RowGroup:
    """One row of a version's index of row groups."""

    split: str
    part: int
    """Number of the part within its split."""
    index: int
    """Number of the row group within its part."""
    file: str
    """Path of the part, relative to the version."""
    rows: int
    bytes: int
    """Compressed size of its column chunks."""
    footer_offset: int
    """Where the file's footer starts: one ranged read brings it."""
    digest: str
    """Hex SHA-256 of its columns in canonical form."""


ROW_GROUPS = pa.schema(
    [
        *(("split", pa.string()), ("part", pa.int64()), ("index", pa.int64()), ("file", pa.string()), ("rows", pa.int64())),
        *(("bytes", pa.int64()), ("footer_offset", pa.int64()), ("digest", pa.string())),
    ]
)
"""The index as a table."""


def rows_per_group(columns: tuple[TensorColumn, ...], row_group_bytes: int) -> int:
    """How many rows decode to about `row_group_bytes`, within ROWS_PER_GROUP."""
    return int(np.clip(row_group_bytes // sum(column.row_bytes for column in columns), *ROWS_PER_GROUP))


def row_group_digest(columns: tuple[TensorColumn, ...], table: pa.Table) -> str:
    """Hex SHA-256 over each column's name, dtype, shape and values, little-endian in C order: not over Arrow's buffers,
    whose offsets and padding depend on who made them."""
    digest = sha256()
    for column in columns:
        digest.update(f"{column.name} {column.dtype} {column.shape} {table.num_rows}\n".encode())
        for chunk in table.column(column.name).chunks:
            digest.update(np.ascontiguousarray(to_numpy(column, chunk)).data)
    return digest.hexdigest()


def write_part(
    filesystem: pa.fs.FileSystem,
    root: str,
    file: str,
    split: str,
    part: int,
    columns: tuple[TensorColumn, ...],
    table: pa.Table,
    row_group_bytes: int,
) -> list[RowGroup]:
    """Write `table` as `root`/`file` and return its row groups. Equal tables make equal bytes.

    LZ4 costs a tenth of the decoding rate and halves what is read; page checksums are verified on every read;
    dictionaries help whole numbers only, and cost floats time and space.
    """
    whole_numbers = [column.name for column in columns if not column.shape and "int" in column.dtype]
    groups: list[tuple[int, str]] = []
    with filesystem.open_output_stream(f"{root}/{file}") as stream:
        with pq.ParquetWriter(
            stream,
            arrow_schema(columns),
            compression="lz4",
            use_dictionary=whole_numbers,
            write_page_checksum=True,
            write_statistics=False,
            store_schema=True,
        ) as writer:
            for rows in _slices(table, rows_per_group(columns, row_group_bytes)):
                writer.write_table(rows, row_group_size=len(rows))
                groups.append((len(rows), row_group_digest(columns, rows)))
    return _described(filesystem, root, file, split, part, groups)


def _slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


def _described(filesystem: pa.fs.FileSystem, root: str, file: str, split: str, part: int, groups: list[tuple[int, str]]) -> list[RowGroup]:
    """The row groups of a closed part, its footer read back from where it was written."""
    with filesystem.open_input_file(f"{root}/{file}") as source:
        size = source.size()
        footer = pq.read_metadata(source)
    offset = size - 8 - footer.serialized_size
    return [
        RowGroup(split, part, index, file, rows, compressed_bytes(footer.row_group(index)), offset, digest)
        for index, (rows, digest) in enumerate(groups)
    ]


def compressed_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))
