"""Files inside tar archives, and archives that are none."""

import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.errors import SourceError
from pipelines.formats.tar.table import read_members

SCHEMA = pa.schema([("path", pa.string()), ("content", pa.binary())])
FILES = {"a/one.wav": b"1" * 2_000, "a/two.wav": b"", "three": bytes(range(256)) * 20}


def write(path: Path, mode: str = "w", files: dict[str, bytes] = FILES) -> str:
    with tarfile.open(path, mode) as archive:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return str(path)


@pytest.mark.parametrize(("name", "mode"), [("x.tar", "w"), ("x.tar.gz", "w:gz"), ("x.tar.bz2", "w:bz2")])
def test_files_are_read_and_folders_and_links_are_not(tmp_path: Path, name: str, mode: str) -> None:
    members = pa.Table.from_batches(read_members(write(tmp_path / name, mode), SCHEMA), SCHEMA)
    assert dict(zip(members["path"].to_pylist(), members["content"].to_pylist(), strict=True)) == FILES


def test_columns_come_as_the_schema_has_them(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("content"), SCHEMA.field("path")])
    assert next(read_members(write(tmp_path / "x.tar"), schema)).schema == schema


def test_large_archives_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.formats.tar.table.BATCH_BYTES", 1_000)
    assert [batch.num_rows for batch in read_members(write(tmp_path / "x.tar"), SCHEMA)] == [1, 2]


@pytest.mark.parametrize("cut", [700, -600])
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_an_archive_that_breaks_off_is_named(tmp_path: Path, name: str, cut: int) -> None:
    path = Path(write(tmp_path / name, "w" if name == "x.tar" else "w:gz", {**FILES, "noise": bytes(range(256)) * 400}))
    content = path.read_bytes()
    path.write_bytes(content[: cut if name == "x.tar.gz" else 3_000])
    with pytest.raises(SourceError, match=rf"{name}.*(whole tar archive|cannot be read)"):
        list(read_members(str(path), SCHEMA))


HEADERS = {"a/": 0, "a/one.wav": 512, "a/two.wav": 3_072, "three": 3_584}
"""Where the headers of the archive begin."""


@pytest.mark.parametrize("cut", [HEADERS["a/two.wav"], HEADERS["three"], HEADERS["three"] + 200])
def test_an_archive_that_is_cut_between_files_or_in_a_header_is_not_whole(tmp_path: Path, cut: int) -> None:
    path = Path(write(tmp_path / "x.tar"))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match=r"x.tar is not a whole tar archive: "):
        list(read_members(str(path), SCHEMA))


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_no_damaged_header_is_taken_for_the_end(tmp_path: Path, header: int) -> None:
    path = Path(write(tmp_path / "x.tar"))
    content = bytearray(path.read_bytes())
    content[header] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"x.tar is not a whole tar archive: bad checksum"):
        list(read_members(str(path), SCHEMA))


def test_archives_that_follow_each_other_are_read_as_one(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1.tar"), write(tmp_path / "2.tar", files={"more": b"2"})
    (tmp_path / "x.tar").write_bytes(Path(first).read_bytes() + Path(second).read_bytes())
    members = pa.Table.from_batches(read_members(str(tmp_path / "x.tar"), SCHEMA), SCHEMA)
    assert members["path"].to_pylist() == [*FILES, "more"]


@pytest.mark.parametrize("content", [b"", b"no archive at all" * 100])
def test_other_files_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(SourceError, match=r"x.tar is not a whole tar archive: .*; get the file again"):
        list(read_members(str(tmp_path / "x.tar"), SCHEMA))


def test_a_file_that_promises_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.formats.tar.table.MEMBER_BYTES", 1_999)
    with pytest.raises(SourceError, match=r"a/one.wav has 2,000 bytes"):
        list(read_members(write(tmp_path / "x.tar"), SCHEMA))
