"""An ETL on executors that bring their environment along: `cluster/pack.sh`, `spark-submit --archives`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import cluster, run

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    with cluster(home) as environment:
        yield environment


def test_executors_run_in_the_environment_that_is_sent_along(environment: dict[str, str], home: Path) -> None:
    archive = home / "environment.tar.gz"
    run(["cluster/pack.sh", str(archive), "scikit-learn"], {name: value for name, value in environment.items() if name != "PYTHONPATH"})
    python = {"PYSPARK_DRIVER_PYTHON": "python", "PYSPARK_PYTHON": "./environment/bin/python"}
    said = run(["spark-submit", "--archives", f"{archive}#environment", "jobs/etl.py", "conf/digits.yaml"], {**environment, **python})
    assert "train 1,246, validation 269, test 282" in said
    unpacked = [folder for number in (1, 2) for folder in (home / f".cluster/spark/worker-{number}").glob("app-*/*/environment")]
    assert len(unpacked) == 2
    for folder in unpacked:  # with the package itself, which on one machine executors find at the driver's place as well
        assert str(folder) in run([str(folder / "bin/python"), "-I", "-c", "import pipelines; print(pipelines.__file__)"], environment)
