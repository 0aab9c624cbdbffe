"""IDX files are read as they lie, whatever their type, and refused by name if they are none."""

import gzip
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from tables import idx, write

from pipelines.errors import SourceError
from pipelines.formats.idx.table import read_columns


@pytest.mark.parametrize(("code", "format"), [(0x08, "B"), (0x09, "b"), (0x0B, "h"), (0x0C, "i"), (0x0D, "f"), (0x0E, "d")])
def test_every_type_of_number(tmp_path: Path, code: int, format: str) -> None:
    path = write(tmp_path, "x", idx(code, (3,), struct.pack(f">3{format}", 1, 2, 100)))
    (batch,) = read_columns([path], pa.schema({"value": pa.float64(), "row": pa.int64()}))
    assert batch.to_pydict() == {"value": [1.0, 2.0, 100.0], "row": [0, 1, 2]}


def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.formats.idx.table.BATCH_BYTES", 9)
    paths = [write(tmp_path, "x.gz", gzip.compress(idx(0x08, (5, 2), bytes(range(10))))), write(tmp_path, "y", idx(0x08, (5,), b"abcde"))]
    batches = list(read_columns(paths, pa.schema({"x": pa.binary(), "y": pa.int16(), "row": pa.int32()})))
    assert [len(batch) for batch in batches] == [3, 2]
    assert pa.Table.from_batches(batches).to_pydict() == {
        "x": [b"\0\1", b"\2\3", b"\4\5", b"\6\7", b"\x08\x09"], "y": list(b"abcde"), "row": [0, 1, 2, 3, 4],
    }  # fmt: skip


def test_numbers_must_fit_their_column(tmp_path: Path) -> None:
    path = write(tmp_path, "x", idx(0x0C, (1,), struct.pack(">i", 300)))
    with pytest.raises(SourceError, match=f"{path} does not fit its column value: .*300.*; choose a wider type"):
        list(read_columns([path], pa.schema({"value": pa.int8()})))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(0x08, (3,), b"ab"), "is truncated: its header promises 3 rows, 2 are there"),
        (idx(0x08, (3,), b"abcd"), "goes on after the 3 rows"),
        (b"PNG...", "is not an IDX file: it begins with 50 4e 47 2e"),
        (b"", "is not an IDX file: it begins with nothing"),
        (idx(0x08, (2, 2), b"")[:9], "is truncated: 2 dimensions are promised"),
        (idx(0x08, (2, 2), b"abcd"), "holds binary per row, and its column value is int"),
        (gzip.compress(idx(0x08, (3,), b"abc"), mtime=0)[:-9], "cannot be read|is truncated"),
    ],
)
def test_what_is_not_idx_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, "x.gz" if content[:1] == b"\x1f" else "x", content)
    with pytest.raises(SourceError, match=f"^{path} ({message})"):
        list(read_columns([path], pa.schema({"value": pa.int32()})))
