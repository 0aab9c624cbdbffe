"""The error of a query that cannot be translated for the served model."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb


class UntranslatableError(Exception):
    """Names the part of a query that cannot be computed row by row without Spark."""


@contextmanager
def duckdb_errors() -> Iterator[None]:
    """Around the comparison of a translation: turns DuckDB's errors into UntranslatableError."""
    try:
        yield
    except duckdb.Error as error:
        raise UntranslatableError(next(iter(str(error).splitlines()), type(error).__name__)) from error
