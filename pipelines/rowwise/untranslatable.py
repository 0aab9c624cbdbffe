"""Why a query is not served: whoever translates it says so, or DuckDB."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb


class UntranslatableError(Exception):
    """Says what of a query cannot be computed row by row without Spark."""


@contextmanager
def duckdb_errors() -> Iterator[None]:
    """Around the comparison of a translation: what DuckDB refuses is no translation. Raises UntranslatableError for it."""
    try:
        yield
    except duckdb.Error as error:
        raise UntranslatableError(next(iter(str(error).splitlines()), type(error).__name__)) from error
