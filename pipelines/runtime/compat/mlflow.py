"""How MLflow's scoring server, `mlflow models serve`, reads and writes the rows of a model; and how MLflow checks requirements."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mlflow import environment_variables, pyfunc
from mlflow.types import Schema
from mlflow.utils import environment

from pipelines.runtime.compat import attribute, present, replace, replacement

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


@contextmanager
def trusted_requirements() -> Iterator[None]:
    """Around the logging of a model whose requirements are the installed versions: MLflow does not compare them with these, neither when it
    writes the model nor when it loads it.

    It would list all files of all installed packages for that, which takes more than a second.
    """
    name = "warn_dependency_requirement_mismatches"
    with replacement(environment, name, lambda requirements: None), replacement(pyfunc, name, lambda requirements: None):
        yield
