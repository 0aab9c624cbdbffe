"""The values of a sample of CSV, as texts, read as ETL will read them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.config.messages.counting import show_count
from pipelines.data.sources.text import records
from pipelines.errors import SourceError
from pipelines.init.tables.column_names import column_names
from pipelines.init.tables.dialect import TableDialect, split_records
from pipelines.init.tables.layout import Layout, fit_names
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
    repeated_headers: int = 0
    """Records that repeat the header, which `table` does not have."""
    doubt: str = ""
    """What is wrong with the first broken record, and how many more there are."""


def read_cells(sample: TextSample, layout: Layout, path: str) -> Cells:
    """The texts of a sample, by column.

    Raises SourceError for a file without rows, and for one with too many broken records."""
    dialect = layout.dialect
    data = sample.data if dialect.encoding == "utf-8" else sample.data.decode(dialect.encoding, "replace").encode()
    blocks = (data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES))
    cut = pa.Table.from_batches(records.cut(blocks, replace(dialect.cutting, encoding="utf-8", header=False), path), records.SCHEMA)
    if len(cut) <= dialect.has_header:
        raise SourceError(f"{path} has no rows; give a file that has some")
    written = _written_names(cut, layout)
    header = fit_names(written, dialect.width)
    cut = cut.slice(dialect.has_header)
    width = max(dialect.width, 1)
    if dialect.has_header and (len(header) != width or bool(header[-1]) != bool(layout.names[-1])):
        raise SourceError(
            f"{path} and the first file have different columns, such as {_difference(header, layout.names)}; give files that are alike"
        )
    names = column_names(header, width)
    table = _parse(cut.filter(pc.is_null(cut["problem"]))["record"], dialect, width).rename_columns(names)
    broken = len(cut) - len(table)
    repeated = _repeats(table, header) if len(header) == width else np.zeros(len(table), bool)
    table = table.filter(pa.array(~repeated))
    share = broken / len(cut)
    if share > MOST_BROKEN:
        raise SourceError(f"{path}: {100 * share:.0f} % of the records are broken ({_first_fault(cut, dialect)}); mend the file")
    of_those_read = "" if sample.is_complete else "of those read, "
    more = f" and {broken - 1:,} more are" if broken > 1 else " is"
    end = "left out by the query" if dialect.is_aligned else "refused by ETL"
    doubt = f"{path}: {of_those_read}{_first_fault(cut, dialect)}: it{more} {end}" if broken else ""
    return Cells(table, share, not dialect.has_header or names == written, int(repeated.sum()), doubt)


def _difference(header: Sequence[str], names: Sequence[str]) -> str:
    """Some names that only one of two headers has; of those that differ otherwise, their number."""
    differing = sorted(set(header) ^ set(names))[:4]
    return ", ".join(differing) or f"{len(header)} names, not {len(names)}"


def _written_names(cut: pa.Table, layout: Layout) -> list[str]:
    """The names in a file: of one that is read with a header, those in its first record."""
    if not layout.dialect.has_header or cut["problem"][0].as_py():
        return list(layout.names)
    return [name.strip() for name in next(split_records([cut["record"][0].as_py()], layout.dialect), [])]


def _repeats(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Which rows are the header once more, as where files were joined. The first value may have a byte order mark."""
    pairs = [(column, name) for column, name in zip(table.columns, names, strict=True) if name]
    if not pairs or len(table) == 0:
        return np.zeros(len(table), bool)
    masks = [pc.fill_null(pc.equal(pc.utf8_ltrim(pc.utf8_trim_whitespace(column), "\ufeff"), name), False) for column, name in pairs]
    return reduce(pc.and_, masks).to_numpy()


def _parse(sound: pa.ChunkedArray, dialect: TableDialect, width: int) -> pa.Table:
    """Records of `width` values as columns of text; others are left out."""
    texts = sound
    if dialect.is_aligned or len(dialect.separator) > 1 or _has_quotes_behind_blanks(sound, dialect):  # which Arrow does not take
        rows = split_records(sound.to_pylist(), dialect)
        columns = list(zip(*(row for row in rows if len(row) == width), strict=True)) or [()] * width
        arrays = [pa.array(column, pa.large_string()) for column in columns]
        return pa.table({str(place): _clean(pa.chunked_array([array]), dialect) for place, array in enumerate(arrays)})
    names = [str(place) for place in range(width)]
    parsed = pyarrow.csv.read_csv(
        pa.BufferReader(b"\n".join(texts.cast(pa.large_binary()).to_pylist())),
        pyarrow.csv.ReadOptions(column_names=names, block_size=max(_BLOCK_BYTES, 2 * (pc.max(pc.binary_length(texts)).as_py() or 0))),
        pyarrow.csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=dialect.is_multiline,
            invalid_row_handler=lambda row: "skip",
        ),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False),
    )
    return pa.table(
        {name: _clean(parsed[name], dialect) for name in names}, schema=pa.schema([(name, pa.large_string()) for name in names])
    )


def _has_quotes_behind_blanks(sound: pa.ChunkedArray, dialect: TableDialect) -> bool:
    is_possible = dialect.has_blanks and bool(dialect.quote)
    return is_possible and bool(pc.any(pc.match_substring(sound, f" {dialect.quote}")).as_py())


def _clean(cells: pa.ChunkedArray, dialect: TableDialect) -> pa.Array:
    """The texts without the blanks that the dialect ignores; empty ones as NULL."""
    texts = cells.combine_chunks()
    if dialect.has_blanks:
        texts = pc.utf8_trim(texts, " \t")
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.large_string()), texts)


def _first_fault(cut: pa.Table, dialect: TableDialect) -> str:
    """The line of the first broken record, and what is wrong there."""
    faults = []
    if problem := cut.filter(pc.is_valid(cut["problem"])).slice(0, 1).to_pylist():
        faults.append((problem[0]["line"], f"line {problem[0]['line']:,}: {problem[0]['problem']}"))
    sound = cut.filter(pc.is_null(cut["problem"])).slice(0, 100_000)
    widths = [len(values) for values in split_records(sound["record"].to_pylist(), dialect)]
    place = next((place for place, width in enumerate(widths) if width != dialect.width), None)
    if place is not None:
        line = sound["line"][place].as_py()
        faults.append((line, f"line {line:,} has {show_count(widths[place], 'value')}, and most have {dialect.width}"))
    return min(faults)[1] if faults else "a record is of another width"
