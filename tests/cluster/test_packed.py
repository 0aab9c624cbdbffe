"""An ETL on executors that bring their environment along: `cluster/pack.sh`, `spark-submit --archives`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import cluster, run
from documents import below, reader_folder, type_block

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    with reader_folder(home), cluster(home) as environment:
        yield environment


def test_executors_run_in_the_environment_that_is_sent_along(environment: dict[str, str], home: Path) -> None:
    (block,) = below("docs/how-to/cluster.md: What machines have to have in common")
    assert "train 1,246, validation 269, test 282" in type_block(block, home)
    unpacked = [folder for number in (1, 2) for folder in (home / f".cluster/spark/worker-{number}").glob("app-*/*/environment")]
    for number in (1, 2):
        assert any(f"/worker-{number}/" in str(folder) for folder in unpacked), f"worker {number} has unpacked nothing"
    for folder in unpacked:  # with the package itself, which on one machine executors find at the driver's place as well
        assert str(folder) in run([str(folder / "bin/python"), "-I", "-c", "import pipelines; print(pipelines.__file__)"], environment)
    shutil.rmtree(home / "environment")
    submit = ["spark-submit", "--archives", "environment.tar.gz#environment", "jobs/etl.py", "conf/digits.yaml", "--dataset.path", "other"]
    python = {**environment, "PYSPARK_DRIVER_PYTHON": "python", "PYSPARK_PYTHON": "./environment/bin/python"}
    assert "./environment/bin/python is the executors' Python, and not on this machine" in run(submit, python, 7, home)
