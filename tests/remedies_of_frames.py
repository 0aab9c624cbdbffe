"""Remedies of errors of frames: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from pipelines.notebook.frames import store_frame

Do = Callable[[Path], Any]


def store(*columns: Any, values: ArrayLike = (1, 2)) -> Do:
    """Stores a frame whose columns have these names and all the same values."""
    return lambda folder: store_frame(pd.concat([pd.Series(values, name=name) for name in columns], axis=1), folder)


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "the frame has {} rows and {} columns; pass one": (store("a", values=[]), (store("a"),)),
    "has a column called {}, which is no text; rename it": (store(1), (store("1"),)),
    "has several columns called {}; rename or drop": (store("a", "a"), (store("a", "b"), store("a"))),
}
