"""The values of a sample of CSV, as texts, read as ETL will read them."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.data.sources.text import records
from pipelines.errors import SourceError
from pipelines.init.tables.column_names import column_names
from pipelines.init.tables.dialect import TableDialect, split_lines
from pipelines.init.tables.sample import TextSample

MOST_BROKEN = 0.1
"""Share of broken records beyond which no config is drafted."""
_BLOCK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Cells:
    """The texts of a sample."""

    table: pa.Table
    """An empty value is NULL."""
    broken: float
    """Share of the records that are broken."""
    has_plain_names: bool
    """Whether the names of the columns are those of the header."""


def read_cells(sample: TextSample, dialect: TableDialect, path: str) -> Cells:
    """The texts of a sample, by column.

    Raises SourceError for a file without rows, and for one with too many broken records."""
    data = sample.data if dialect.encoding == "utf-8" else sample.data.decode(dialect.encoding, "replace").encode()
    blocks = (data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES))
    batches = list(records.cut(blocks, replace(dialect.cutting, encoding="utf-8"), path))
    cut = pa.Table.from_batches(batches, records.SCHEMA)
    if not len(cut):
        raise SourceError(f"{path} has no rows; give a file that has some")
    sound = cut.filter(pc.is_null(cut["problem"]))["record"]
    width = _width(sound, dialect)
    table = _parse(sound, dialect, width)
    has_header = dialect.has_header and len(table) > 0
    header = [column[0].as_py() for column in table.columns] if has_header else []
    names = column_names(header, width)
    table = table.slice(has_header).rename_columns(names)
    rows = len(cut) - dialect.has_header
    broken = (rows - len(table)) / max(rows, 1)
    if broken > MOST_BROKEN:
        raise SourceError(_broken_line(cut, width, dialect, broken, path))
    return Cells(table, broken, not has_header or names == header)


def _width(sound: pa.ChunkedArray, dialect: TableDialect) -> int:
    """The most frequent number of values, of the first records."""
    lines = [line.rstrip("\r\n") for line in sound.slice(0, 2_000).to_pylist()]
    return Counter(map(len, split_lines(lines, dialect))).most_common(1)[0][0] if lines else 0


def _parse(sound: pa.ChunkedArray, dialect: TableDialect, width: int) -> pa.Table:
    """Records of `width` values as columns of text; others are left out."""
    data = b"\n".join(sound.cast(pa.large_binary()).to_pylist())
    names = [str(place) for place in range(width)]
    if dialect.is_aligned:
        data = b"\n".join(b"\t".join(line.split()) for line in data.splitlines() if line.strip())
    parsed = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(column_names=names, block_size=max(_BLOCK_BYTES, 2 * (pc.max(pc.binary_length(sound)).as_py() or 0))),
        pyarrow.csv.ParseOptions(
            delimiter="\t" if dialect.is_aligned else dialect.separator,
            quote_char=(not dialect.is_aligned and dialect.quote) or False,
            escape_char=dialect.escape or False,
            newlines_in_values=dialect.is_multiline,
            invalid_row_handler=lambda row: "skip",
        ),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False),
    )
    return pa.table(
        {name: _clean(parsed[name], dialect) for name in names}, schema=pa.schema([(name, pa.large_string()) for name in names])
    )


def _clean(cells: pa.ChunkedArray, dialect: TableDialect) -> pa.Array:
    """The texts without the blanks that the dialect ignores; empty ones as NULL."""
    texts = cells.combine_chunks()
    if dialect.has_blanks:
        texts = pc.utf8_trim(texts, " \t")
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.large_string()), texts)


def _broken_line(cut: pa.Table, width: int, dialect: TableDialect, broken: float, path: str) -> str:
    """The error about the broken records, which names the first of them."""
    problem = cut.filter(pc.is_valid(cut["problem"])).slice(0, 1).to_pylist()
    if problem:
        fault = f"line {problem[0]['line']}: {problem[0]['problem']}"
    else:
        lines = [line.rstrip("\r\n") for line in cut["record"].slice(0, 100_000).to_pylist()]
        widths = np.array([len(values) for values in split_lines(lines, dialect)])
        place = int(np.argmax(widths != width))
        fault = f"line {cut['line'][place].as_py()} has {widths[place]} values, and most have {width}"
    return f"{path}: {100 * broken:.0f} % of the records are broken ({fault}); mend the file"
