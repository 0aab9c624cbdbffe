"""Remedies of errors about series: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remedy_cases import Do, fit_columns


def fit_series(values: list[Any], **settings: Any) -> Callable[[Path], Any]:
    return lambda folder: fit_columns({"encoder": "series", "steps": 2, **settings}, a=values)


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "it takes arrays of numbers; make them in the query": (fit_series([1, 2, 3]), (fit_series([[1], [2, 3], [4]]),)),
    "numbers; make them in the query, as by transform": (
        fit_series([[1, 2]] * 3, channels=2),
        (fit_series([[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]], channels=2),),
    ),
}
