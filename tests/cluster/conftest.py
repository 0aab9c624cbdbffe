"""For tests that use a cluster: each module has its own `environment`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import mlflow_client, new_home
from mlflow import MlflowClient


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with new_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def client(environment: dict[str, str]) -> Iterator[MlflowClient]:
    with mlflow_client(environment) as client:
        yield client
