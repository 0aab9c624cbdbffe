"""How MLflow's scoring server, `mlflow models serve`, reads and writes the rows of a model."""

import os
from collections.abc import Mapping
from typing import Any

from mlflow import environment_variables
from mlflow.types import Schema

from pipelines.runtime.compat import attribute, present, replace

present(environment_variables, "_MLFLOW_IS_IN_SERVING_ENVIRONMENT")


def is_serving() -> bool:
    """Whether this process is MLflow's scoring server: what a model returns is then written as JSON."""
    return os.environ.get(attribute(environment_variables, "_MLFLOW_IS_IN_SERVING_ENVIRONMENT").name) == "true"


def read_csv_as(kinds: Mapping[str, Any]) -> None:
    """Make MLflow read `text/csv` with these types of pandas, for a model whose signature has exactly these columns in this order.

    MLflow has no type for a signature that takes integers and fractions alike from pandas and JSON except `Any`, for which it reads no
    CSV at all: every request is answered 400.
    """
    before = Schema.pandas_types

    def pandas_types(schema: Schema) -> list[Any]:
        return list(kinds.values()) if schema.input_names() == list(kinds) else list(before(schema))

    replace(Schema, "pandas_types", pandas_types)
