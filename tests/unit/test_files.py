"""Files are found as Spark finds them, and cut so that every line is in one piece."""

import gzip
import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config.source.source import Table
from pipelines.data.sources.files.content import blocks, lines, locate
from pipelines.data.sources.files.files import find, has_folders, ranges, task_bytes, would_find
from pipelines.data.sources.files.listing import File
from pipelines.data.sources.files.spark_files import check_names
from pipelines.data.sources.text.csv import Csv
from pipelines.errors import SourceError

NAMES = ("a.csv", "b.csv", "b.txt", "x=1/c.csv", "deep/er/d.csv", "_hidden/e.csv", "deep/.f.csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw data")
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


GLOBS = [
    ("", ["a.csv", "b.csv", "b.txt", "deep/er/d.csv", "x=1/c.csv"]),
    ("/b.txt", ["b.txt"]),
    ("/*.csv", ["a.csv", "b.csv"]),
    ("/[b-z].{csv,txt}", ["b.csv", "b.txt"]),
    ("/?.csv", ["a.csv", "b.csv"]),
    ("/{a*,b}.csv", ["a.csv", "b.csv"]),
    ("/{a,{b,x=1/c}}.c[a-z]v", ["a.csv", "b.csv", "x=1/c.csv"]),
    ("/{d*,x=1}", ["deep/er/d.csv", "x=1/c.csv"]),
    ("/[!a].csv", ["b.csv"]),
    ("/[^a].csv", ["b.csv"]),
    ("/d*", ["deep/er/d.csv"]),
    ("/*/*.csv", ["x=1/c.csv"]),
    ("/**/*.csv", ["a.csv", "b.csv", "deep/er/d.csv", "x=1/c.csv"]),
    ("/d*/**/d.csv", ["deep/er/d.csv"]),
]


@pytest.mark.parametrize(("glob", "expected"), GLOBS)
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_paths_folders_and_globs(folder: Path, scheme: str, glob: str, expected: list[str]) -> None:
    files = find(f"{scheme}{folder}{glob}".replace(" ", "%20" if scheme else " "))
    assert [file.path.removeprefix(f"{folder}/") for file in files] == expected
    assert [file.bytes for file in files] == [len(name) for name in expected]


def test_files_of_an_installed_package() -> None:
    files = find("package://sklearn/datasets/**/*.csv.gz")
    assert "package://sklearn/datasets/data/digits.csv.gz" in [file.path for file in files]
    (alone,) = find("package://sklearn/datasets/data/digits.csv.gz")
    assert alone in files and b"".join(blocks(alone.path)).count(b"\n") == 1_797


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("package://sklearn/**/*.nothing", r"package://sklearn/\*\*/\*.nothing: no such file in .*sklearn"),
        ("package://no_such_package/*.py", "no package no_such_package is installed in a folder; install it on every machine"),
    ],
)
def test_packages_without_such_files_are_named(path: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        find(path)


@pytest.mark.parametrize("name", ["antigravity", "sklearn.datasets", "__main__", "", "..", "json"])
def test_what_is_no_package_in_a_folder_is_refused_and_never_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    for file in ("x.csv", "*.csv"):
        with pytest.raises(SourceError, match=f"no (package {re.escape(name)} is installed|such file)"):
            find(f"package://{name}/{file}")
    assert "antigravity" not in sys.modules


def test_a_package_s_files_lie_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lent"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a package that is run')")
    (package / "deep/a.csv").write_text("1\n")
    (tmp_path / "secret.csv").write_text("2\n")
    (package / "link.csv").symlink_to(tmp_path / "secret.csv")
    (package / "near.csv").symlink_to(package / "deep/a.csv")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("../secret.csv", "deep/../../secret.csv", "link.csv", "/etc/passwd", "*nk.csv"):
        with pytest.raises(SourceError, match="leads out of the package, to /"):
            find(f"package://lent/{name}")
        with pytest.raises(SourceError, match=r"leads out of the package, to /|no such file"):
            list(blocks(f"package://lent/{name}"))
    with pytest.raises(SourceError, match=r"a folder in .*lent; give a file"):
        find("package://lent/deep")
    assert [file.bytes for file in find(("package://lent/near.csv", "package://lent/deep/../deep/a.csv", "package://lent/**/a.csv"))] == [
        2
    ] * 3


def test_braces_without_end_are_refused() -> None:
    with pytest.raises(SourceError, match="braces stand for more than 1,000 globs; use"):
        find("/tmp/{1..100000}.csv")


def test_several_paths_give_each_file_once(folder: Path) -> None:
    assert [Path(file.path).name for file in find((f"{folder}/b*", f"{folder}/*.csv"))] == ["a.csv", "b.csv", "b.txt"]


def test_a_hidden_folder_that_is_named_is_read(folder: Path) -> None:
    assert [file.path for file in find(f"{folder}/_hidden/*")] == [f"{folder}/_hidden/e.csv"]


@pytest.mark.parametrize("path", ["none.csv", "*.json", "x=1/*.txt"])
def test_a_path_without_files_is_named(folder: Path, path: str) -> None:
    with pytest.raises(SourceError, match="no such file"):
        find(f"{folder}/{path}")


def test_a_name_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))).write_text("a")
    with pytest.raises(SourceError, match=r"a file's name is not UTF-8: .*caf\\xe9.txt'; rename it"):
        find(str(tmp_path))


def test_a_link_that_leads_back_is_named(tmp_path: Path) -> None:
    for folder, link, target in (("a", "again", "."), ("b", "there", "../c"), ("c", "back", "../b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / link).symlink_to(target)
        (tmp_path / folder / "one.csv").write_text("1")
    with pytest.raises(SourceError, match="a/again: leads back to a folder that it lies in; remove the link"):
        find(str(tmp_path / "a"))
    with pytest.raises(SourceError, match="b/there/back: leads back"):
        find(f"{tmp_path}/b/**/*.csv")
    assert [file.path for file in find(f"{tmp_path}/?/*.csv")] == [f"{tmp_path}/{folder}/one.csv" for folder in "abc"]
    (tmp_path / "c/back").unlink()
    assert [file.path for file in find(str(tmp_path / "b"))] == [f"{tmp_path}/b/one.csv", f"{tmp_path}/b/there/one.csv"]


def test_an_unknown_file_system_is_named() -> None:
    with pytest.raises(SourceError, match=r"^what://is/this: .*give a local path or a URI that pyarrow knows"):
        find("what://is/this")


@given(lengths=st.lists(st.integers(0, 30), max_size=40), range_bytes=st.integers(1, 50), ends=st.booleans())
def test_every_line_is_in_one_piece(folder: Path, lengths: list[int], range_bytes: int, ends: bool) -> None:
    path = folder / "_lines" / "a.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(f"{number}{'x' * length}" for number, length in enumerate(lengths)) + "\n" * ends)
    pieces = [piece for task in ranges(find(str(path)), range_bytes) for piece in task]
    read = [b"".join(lines(piece.file.path, piece.start, piece.stop)) for piece in pieces]
    assert b"".join(read) == path.read_bytes()
    assert all(not text or text.endswith(b"\n") for position, text in enumerate(read) if any(read[position + 1 :]))


def test_compressed_files_do_not_split(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n" * 1000))
    (tmp_path / "b.txt").write_bytes(b"2\n" * 5)
    work = ranges(find(str(tmp_path)), 4)
    assert [(Path(piece.file.path).name, piece.start) for pieces in work for piece in pieces] == [
        ("a.gz", 0),
        ("b.txt", 0),
        ("b.txt", 4),
        ("b.txt", 8),
    ]
    piece = work[0][0]
    assert b"".join(lines(piece.file.path, piece.start, piece.stop)) == b"1\n" * 1000


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_many_small_files_make_few_tasks_but_one_for_every_core(cores: int) -> None:
    files = [File(f"{number}.jpg", 700, "") for number in range(60_000)]
    work = ranges(files, task_bytes(files, cores), split=False)
    assert [piece.file for pieces in work for piece in pieces] == files
    assert cores <= len(work) <= max(40, 3 * cores)


def test_small_files_share_a_task(folder: Path) -> None:
    assert len(ranges(find(str(folder)), 2**20)) == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", True), ("/", True), ("/**", True), ("/*/*", True), ("/d*", True), ("/*.csv", False), ("/deep", False), ("/a.csv", False)],
)
def test_what_would_be_found(folder: Path, path: str, expected: bool) -> None:
    assert would_find(f"{folder}{path}", f"{folder}/data/version") == expected
    assert not would_find(f"{folder}{path}", f"{folder}/_data/version"), "it is hidden"
    assert not would_find(f"{folder}{path}", f"{folder}s/data/version")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_store_is_a_file_system(store_options: str, scheme: str) -> None:
    filesystem, _ = locate(f"s3://raw/?{store_options}")
    filesystem.create_dir("raw")
    for name in NAMES:
        with filesystem.open_output_stream(f"raw/in/{name}") as stream:
            stream.write(name.encode())
    for glob, expected in [pair for pair in GLOBS if "?" not in pair[0]]:
        files = find(f"{scheme}://raw/in{glob}?{store_options}")
        assert [file.path for file in files] == [f"{scheme}://raw/in/{name}?{store_options}" for name in expected]
        assert [b"".join(blocks(file.path)).decode() for file in files] == expected


def test_a_name_that_java_cannot_read_is_an_error_with_a_remedy() -> None:
    check_names("raw", ["/raw/é.bin"], "UTF-8")
    check_names("raw", ["/raw/e.bin"], "ANSI_X3.4-1968")
    with pytest.raises(SourceError, match=r"^raw: Java takes file names for ANSI_X3.4-1968 and cannot read /raw/é.bin; .* LC_ALL=C.UTF-8$"):
        check_names("raw", ["/raw/e.bin", "/raw/é.bin"], "ANSI_X3.4-1968")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1\x15\x04\x15", "x.csv is a file of Parquet, not of csv; set source.tables.t.format: parquet"),
        (b"PK\x03\x04\x14", "x.csv is a file of ZIP or Excel, not of csv; write it as csv, json or parquet"),
        (b"ORCID,name\n1,a\n", ""),
        (b"PAR1,PAR2\r\n3,4\r\n", ""),
        (b"", ""),
    ],
)
def test_a_binary_file_is_no_table_of_text(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    table = Csv("t", Table.model_validate({"format": "csv", "path": str(path), "schema": "a string"}))
    with pytest.raises(SourceError, match=re.escape(message)) if message else nullcontext():
        table.check_text()


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("", ["code=01/day=2", "code=01", ""]),
        ("/", ["code=01/day=2", "code=01", ""]),
        ("/raw", ["code=01/day=2", "code=01", ""]),
        ("/raw/*", ["code=01/day=2", "code=01", ""]),
        ("/raw/x/*", ["day=2", ""]),
        ("/raw/x/code=01", ["day=2", ""]),
        ("/raw/x/{code=0*,zz}", ["day=2", ""]),
        ("/r*", ["code=01/day=2", "code=01", ""]),
        ("/raw/x/*/*/*.csv", [""]),
        ("/raw/x/code=01/b.csv", [""]),
    ],
)
def test_folders_below_the_path_make_columns_and_those_above_do_not(tmp_path: Path, path: str, folders: list[str]) -> None:
    root = tmp_path / "outer=1"
    for name in ("raw/x/code=01/day=2/a.csv", "raw/x/code=01/b.csv", "raw/y=z.csv"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    assert sorted((file.folders for file in find(f"{root}{path}")), reverse=True) == folders
    assert has_folders(f"{root}{path}") == (not path.endswith("/b.csv"))
