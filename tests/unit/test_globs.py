"""Globs, and the folders that are listed for them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileSelector, LocalFileSystem

from pipelines.data.sources.files.files import entries, is_glob, matcher

NAMES = ("a", "b", "ab", "a=1", "c.csv", "d.txt", "*")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in folders, three deep, with each name as a folder and as a file."""
    root = tmp_path_factory.mktemp("tree")
    for first in NAMES[:4]:
        for second in NAMES[:4]:
            (root / first / second).mkdir(parents=True)
            for name in NAMES[4:]:
                for folder in (root, root / first, root / first / second):
                    (folder / name).touch()
    return root


PARTS = st.sampled_from(("a", "a*", "*", "?", "[ab]", "[!a]*", "{a,ab}", "{a/b,b}", "**", "*.csv", r"\*", "a**"))


@given(parts=st.lists(PARTS, min_size=1, max_size=4))
def test_every_file_that_a_glob_matches_is_listed(tree: Path, parts: list[str]) -> None:
    pattern = "/".join([str(tree), *parts])
    every = LocalFileSystem().get_file_info(FileSelector(str(tree), recursive=True))
    matching = matcher(pattern)
    expected = sorted(entry.path for entry in every if entry.is_file and matching.match(entry.path))
    listed = entries(LocalFileSystem(), pattern) if is_glob(pattern) else every
    assert sorted(entry.path for entry in listed if entry.is_file and matching.match(entry.path)) == expected
    assert len({entry.path for entry in listed}) == len(listed), "a file is listed once"


def test_a_folder_that_a_glob_cannot_match_is_not_listed(tree: Path) -> None:
    """A glob in a home folder need not read all of it."""
    listed = {Path(entry.path).relative_to(tree).parts[0] for entry in entries(LocalFileSystem(), f"{tree}/a*/*.csv") if entry.is_file}
    assert listed == {"a", "ab", "a=1", "c.csv", "d.txt", "*"}
    assert not any(entry.path.startswith(f"{tree}/b/") for entry in entries(LocalFileSystem(), f"{tree}/a*/*.csv"))
    assert {Path(entry.path).parent for entry in entries(LocalFileSystem(), f"{tree}/*.csv")} == {tree}
