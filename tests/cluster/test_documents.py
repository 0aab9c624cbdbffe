"""The pages whose blocks need servers, or minutes, typed as they stand, in fresh shells."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import find_run_id, new_home
from documents import below, reader_folder, type_block

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_home() as home, reader_folder(home) as folder:
        yield folder


def test_p1_a_cluster_of_one_machine_is_started_used_and_ended_as_the_page_says(folder: Path) -> None:
    start, use, end = below("docs/how-to/cluster.md: Servers of one machine")
    (jobs,) = below("docs/how-to/cluster.md: Jobs")
    try:
        assert len(re.findall(r"^\S+ +up ", type_block(start, folder), re.MULTILINE)) == 7
        (name,) = re.findall(r"^job (\S+): ", type_block(use, folder), re.MULTILINE)
        output = type_block(jobs, folder, {"NAME": name})
        assert "best epoch, " in output, output
    finally:
        assert "postgres         ended" in type_block(end, folder)


def test_p5_a_run_is_verified_as_the_page_says(folder: Path) -> None:
    train, verify = below("docs/explanation/exact.md: To verify a run")
    output = type_block(verify, folder, {"RUN_ID": find_run_id(type_block(train, folder))})
    assert len(re.findall(r"^identical: ", output, re.MULTILINE)) == 2
