"""Groups of processes for tests: one that hangs is ended and says where, and data that several want are written once."""

import time
from pathlib import Path

import pytest
from groups import run_processes
from trainings import write_once

pytestmark = pytest.mark.slow


def dawdle(seconds: float) -> None:
    time.sleep(seconds)


def hang(rank: int) -> None:
    if rank == 1:
        dawdle(300)


def test_a_group_that_hangs_is_ended_and_says_where() -> None:
    with pytest.raises(AssertionError, match=r"^of 2 processes, 1 did not end in 5 s:\nprocess 1: (.*\n)*.* in dawdle\n"):
        run_processes(2, hang, seconds=5)


def test_what_several_processes_want_is_written_by_the_first_and_seen_whole(tmp_path: Path) -> None:
    def write(path: Path, author: str) -> None:
        path.mkdir()
        (path / "a").write_text(author)
        assert not (tmp_path / "data").exists(), "a part of it is seen"
        if author == "first":
            (path / "b").write_text(author)

    def write_after_another(path: Path) -> None:
        write(path, "second")
        write_once(tmp_path / "data", lambda other: write(other, "first"))

    write_once(tmp_path / "data", write_after_another)
    write_once(tmp_path / "data", lambda path: write(path, "third"))
    assert [file.read_text() for file in sorted((tmp_path / "data").iterdir())] == ["first", "first"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
