"""One Spark session and one Ray cluster for all integration tests, each started by the first test that asks."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.config.serving import Endpoint
from pipelines.serving.http import start as haproxy

# 4 partitions for a shuffle are enough.
SETTINGS = ("spark.ui.enabled=false", "spark.ui.showConsoleProgress=false", "spark.sql.shuffle.partitions=4")
SPARK = " ".join(["--master local[2] --driver-memory 2g", *[f"--conf {setting}" for setting in SETTINGS], "pyspark-shell"])
ENDPOINT = Endpoint(request_seconds=10.0, answer_seconds=20.0)
"""The limits of an endpoint's HAProxy, short: Ray kills a replica that hangs after 40 s, and its client is answered 500 then."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.etl import WORKER_MODULES
    from pipelines.spark.context import start_context
    from pipelines.spark.session import session

    os.environ["PYSPARK_SUBMIT_ARGS"] = SPARK
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")  # for Spark's workers; of the store that tests start
    start_context("tests", WORKER_MODULES)
    spark = session("tests")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray of 4 CPUs as a training starts it, with a token of its own, apart from any other Ray of the machine."""
    from pipelines.launch.own_ray import own_ray, ray_folder

    with ray_folder() as folder:
        token = Path(folder).with_name("token")
        token.write_text(secrets.token_hex(32))
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ.pop("RAY_ADDRESS", None)
        os.environ |= haproxy.variables(token.with_name("h"), ENDPOINT)  # as an endpoint's own Ray has
        with own_ray(cpus=4, _temp_dir=folder):
            yield
