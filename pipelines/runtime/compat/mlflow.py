"""Private names of MLflow: its scoring server's rows, its check of requirements, and the end of its database sessions, for which signals
wait."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from mlflow import environment_variables, pyfunc
from mlflow.types import Schema
from mlflow.utils import environment

from pipelines.runtime.compat import attribute, is_present, optional_replacement, present, replace
from pipelines.runtime.interrupts import DeferredSignals

_OPEN = "a signal amid a write to MLflow's database delays the next one by 20 s"


@cache
def defer_signals_in_sessions() -> None:
    """Defer signals inside the sessions of every client that this process makes from now on.

    An exception of a signal amid a commit leaves its transaction open, and with it the lock of the database: of a hundred signals amid a
    write, four did. All later writes, such as that of the run's status, would wait for 20 s and fail.
    """
    # Whoever uses a server has no sessions, and need not import SQLAlchemy.
    from mlflow.store.db import utils  # noqa: PLC0415
    from mlflow.store.model_registry import sqlalchemy_store  # noqa: PLC0415

    name = "_get_managed_session_maker"
    if not (is_present(utils, name, instead=_OPEN) and is_present(sqlalchemy_store, name, instead=_OPEN)):
        return
    session_maker = attribute(utils, name)

    def deferring_session_maker(*arguments: Any) -> Callable[..., AbstractContextManager[Any]]:
        make_session = session_maker(*arguments)

        @contextmanager
        def make_deferring_session(**options: Any) -> Iterator[Any]:
            with DeferredSignals(), make_session(**options) as session:
                yield session

        return make_deferring_session

    for module in (utils, sqlalchemy_store):
        replace(module, name, deferring_session_maker)


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
    instead = "MLflow compares the requirements of a model with the installed packages"
    with (
        optional_replacement(environment, name, lambda requirements: None, instead),
        optional_replacement(pyfunc, name, lambda requirements: None, instead),
    ):
        yield
