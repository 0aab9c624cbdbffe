"""The rows that a task gets, the facts that it knows of its dataset without reading any, and tensors that it keeps on each device."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError

Batch = dict[str, Tensor]
"""One tensor per column; the first dimension is the row."""


def row_count(batch: Batch) -> int:
    return len(next(iter(batch.values())))


@dataclass(frozen=True)
class Data:
    """The columns of a dataset, and the facts that its encoders have fitted."""

    columns: tuple[TensorColumn, ...]
    classes: tuple[str, ...] = ()
    """Names of the classes of the target, in the order of their numbers; empty for a quantity."""
    class_counts: tuple[int, ...] = ()
    """Number of rows of each class in the training split; of masks, number of pixels."""
    decode: Callable[[np.ndarray], np.ndarray] = field(default=lambda values: values)
    """Converts target values, shape (rows, …), back to the units of the query."""
    tokens: tuple[bytes, ...] = ()
    """UTF-8 bytes of each token of a packed column; the first token ends a document. Empty for other datasets."""
    unknown_word: int | None = None
    """If tokens are words, the most frequent first, the token of those that are not in the vocabulary; None if tokens are the text."""
    encoders: Mapping[str, FittedEncoder] = field(default_factory=dict)
    """The fitted encoder of each column, by name."""
    carried: tuple[TensorColumn, ...] = ()
    """Columns that the model does not see, but whose values `task.slices` may name."""
    raw: Callable[[str, np.ndarray], np.ndarray] = field(default=lambda name, values: values)
    """Converts encoded values of a column, by its name, back to the units of the query, as far as encoding is invertible."""
    names: Callable[[str], Sequence[str]] = field(default=lambda name: ())
    """Names of the values of a column of indices, in the order of their numbers."""

    def without(self, names: Collection[str]) -> "Data":
        """These facts without features of these names, whose values `task.slices` may still name."""
        hidden = tuple(replace(column, role="carried") for column in self.features if column.name in names)
        if not hidden:
            return self
        columns = tuple(column for column in self.columns if column.role != "feature" or column.name not in names)
        return replace(self, columns=columns, carried=(*self.carried, *hidden))

    @property
    def has_words(self) -> bool:
        """Whether tokens are words of a vocabulary, from which the text cannot be restored."""
        return self.unknown_word is not None

    def form_to_decode(self, form: str) -> dict[str, Any]:
        """A `prediction_form` whose values are converted back by the encoder of the target, which `decodes` names."""
        return {"form": form, "decodes": self.target.name}

    @property
    def features(self) -> tuple[TensorColumn, ...]:
        return tuple(column for column in self.columns if column.role == "feature")

    @property
    def target(self) -> TensorColumn:
        """The target column. Raises ConfigError if there is none, as with a packed feature."""
        target = next((column for column in self.columns if column.role == "target"), None)
        if target is not None:
            return target
        raise ConfigError("this task predicts a target, but dataset.target is empty; add one, or use a task without, such as language")


def scale_pixels(images: Tensor) -> Tensor:
    """Float32 pixels: bytes become numbers from 0 to 1."""
    return images.to(torch.float32) if images.is_floating_point() else images.to(torch.float32) / 255


class Constant:
    """A tensor that is copied to each device, in each dtype, once: a copy in every step would have the host wait for the GPU."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor on this device, by default in its own dtype."""
        key = device, dtype or self.values.dtype
        if torch.compiler.is_compiling():  # a graph has its own copy
            return self.values.to(*key)
        if key not in self._copies:
            self._copies[key] = self.values.to(*key)
        return self._copies[key]
