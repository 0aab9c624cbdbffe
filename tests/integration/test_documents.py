"""Commands of README and docs work as a reader types them, page by page, in fresh shells."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import IN_CLUSTER_TESTS, Block, demo_block, reader_folder, shell_blocks, type_block

BLOCKS = [block for block in shell_blocks() if block.place not in IN_CLUSTER_TESTS and block != demo_block()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with reader_folder(tmp_path_factory.mktemp("reader")) as folder:
        yield folder


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BLOCKS])
def test_p1_a_block_of_the_documents_runs_as_it_is_typed(block: Block, folder: Path) -> None:
    type_block(block, folder)
