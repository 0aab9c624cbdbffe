"""One Spark session and one Ray cluster for all integration tests."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    from pipelines.etl.session import session

    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[2] --conf spark.ui.enabled=false pyspark-shell")
    spark = session("tests")
    yield spark
    spark.stop()
