"""Files in columns are those that they were made of, and identify a table as objects would."""

from hashlib import sha256

import pytest

from pipelines.config.source.source import Table
from pipelines.data.sources.base import NoIncrementError
from pipelines.data.sources.files.file_table import is_pack_worthwhile, stats
from pipelines.data.sources.files.files import OPEN_BYTES, whole_files
from pipelines.data.sources.files.listing import File, Files, WholeFiles, distinct, to_columns
from pipelines.data.sources.files.spark_files import BinaryFile
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.source_files import collect_files

LISTED = [
    File("/raw/a/é.csv", 0, "2026-01-31T01:02:03+00:00"),
    File("/raw/a=1/b=%20/x y.csv", 2**40, "1969-12-31T23:59:59.999999+00:00", "a=1/b=%20"),
    File("/raw/b", 7, ""),
    File("/raw/ü\n", 1, "2026-01-31T01:02:03.000004+00:00"),
]


def test_columns_have_the_files_that_they_were_made_of() -> None:
    listing = to_columns(LISTED)
    assert listing == LISTED and list(listing) == LISTED and to_columns(listing) is listing
    assert [listing[number] for number in range(-4, 4)] == [*LISTED, *LISTED]
    assert listing[1:3] == LISTED[1:3] and listing[::-2] == LISTED[::-2] and listing[5:] == [] and listing[3:1] == []
    assert listing != LISTED[:3] and listing.have_folders and not listing[2:].have_folders
    assert [part.file for part in WholeFiles(listing)] == LISTED and WholeFiles(listing)[1].stop == 2**40
    with pytest.raises(IndexError, match="file 4 of 4"):
        listing[4]


def test_files_of_several_listings_are_there_once() -> None:
    other = [File("/raw/b", 8, ""), File("/raw/0", 1, ""), File("/raw/b", 9, "")]
    assert distinct([to_columns(LISTED).table, to_columns(other).table]) == [other[1], *LISTED[:2], other[2], LISTED[3]]
    assert distinct([to_columns([]).table]) == []


def test_the_state_of_files_is_a_hash_of_their_sizes_and_times() -> None:
    marks = [f"stat:{sha256(f'{file.bytes} {file.modified}'.encode()).hexdigest()}" for file in LISTED]
    assert stats(LISTED) == [SourceFile(file.path, file.bytes, mark) for file, mark in zip(LISTED, marks, strict=True)]


@pytest.mark.parametrize("path", ["/raw", "/raw/../raw//", ("/raw/a", "/raw/a=1", "/raw/b", "/raw/ü\n")])
@pytest.mark.parametrize("order", [1, -1])
def test_lines_of_the_identity_have_checksums_names_and_folders(path: str, order: int) -> None:
    table = BinaryFile("t", Table(format="binaryFile", path=path))
    table.files = to_columns(LISTED)
    listed = [
        SourceFile(file.path.replace("/b", "//./b") if order < 0 else file.path, 1, f"sha256:{number % 2}")
        for number, file in enumerate(LISTED)
    ]
    expected = ["sha256:0 a/é.csv", "sha256:0 b", "sha256:1 a=1/b=%20/x y.csv a=1/b=%20", "sha256:1 ü\n"]
    assert list(table.content_lines(collect_files(listed[::order]), with_names=True)) == expected
    assert list(table.content_lines(listed[::order], with_names=False)) == ["sha256:0", "sha256:0", "sha256:1", "sha256:1 a=1/b=%20"]
    table.files = LISTED[2:]
    assert list(table.content_lines(listed[:1], with_names=False)) == ["sha256:0"]


def test_files_without_changes_are_not_new_ones() -> None:
    table = BinaryFile("t", Table(format="binaryFile", path="/raw"))
    earlier = [SourceFile(f"/raw/{number}", 1, f"sha256:{number}") for number in range(100)]
    assert table._new_paths(collect_files([*earlier, SourceFile("/raw/100", 1, "sha256:1")]), collect_files(earlier)) == {"/raw/100"}
    with pytest.raises(NoIncrementError, match="/raw/7 is gone or altered since"):
        table._new_paths(earlier[:7] + earlier[8:], earlier)


def test_consecutive_files_share_tasks_by_what_they_cost() -> None:
    listing = to_columns([File(f"/{number:06}", 700 if number % 1_000 else 2**22, "") for number in range(100_000)])
    work = whole_files(listing, 2**22)
    assert [start for start, _ in work[1:]] == [start + len(paths) for start, paths in work[:-1]]
    assert [path for _, paths in work for path in paths.to_pylist()] == listing.table["path"].to_pylist()
    costs = [sum(file.bytes + OPEN_BYTES for file in listing[start : start + len(paths)]) for start, paths in work]
    assert max(costs) <= 2 * 2**22 + 2 * OPEN_BYTES and len(work) >= sum(costs) // 2**22 // 2
    assert is_pack_worthwhile(listing) and not is_pack_worthwhile(listing[:63]) and isinstance(listing, Files)
