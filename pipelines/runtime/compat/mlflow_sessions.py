"""Signals wait for the end of MLflow's database sessions."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from pipelines.runtime.compat import attribute, replace
from pipelines.runtime.interrupts import DeferredSignals


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
