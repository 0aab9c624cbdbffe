"""Remedies of errors of frames and arrays: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pipelines.notebook.frames import is_frame, store_frame
from pipelines.notebook.plain_data import write_splits

Do = Callable[[Path], Any]


def store(*columns: Any, values: ArrayLike = (1, 2)) -> Do:
    """Stores a frame whose columns have these names and all the same values."""
    return lambda folder: store_frame(pd.concat([pd.Series(values, name=name) for name in columns], axis=1), folder)


def write(**splits: Any) -> Do:
    """Writes arrays whose target is y."""
    return lambda folder: write_splits(str(folder / "arrays"), splits, "y", None)


X, Y = {"x": np.zeros(2)}, {"y": np.zeros(2)}
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "the frame has {} rows and {} columns; pass one": (store("a", values=[]), (store("a"),)),
    "has a column called {}, which is no text; rename it": (store(1), (store("1"),)),
    "data is of type {}; pass a path, or a frame": (
        lambda folder: is_frame({"a": [1]}),
        (lambda folder: is_frame(pd.DataFrame({"a": [1]})), is_frame),
    ),
    "the frame has a column called {}; {}: rename it": (store("a.b"), (store("a b"),)),
    "splits are {}; name arrays by": (write(dev=Y), (write(train=Y, validation=Y),)),
    "is no column of the arrays, which are {}; name one": (
        write(train=X),
        (lambda folder: write_splits(str(folder), {"train": X}, "x", None),),
    ),
    "give them equal names, dtypes and shapes": (write(train=Y, test={**X, **Y}), (write(train={**X, **Y}, test={**X, **Y}),)),
    "has several columns called {}; rename or drop": (store("a", "a"), (store("a", "b"), store("a"))),
}
