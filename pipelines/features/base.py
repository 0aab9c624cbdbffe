"""What an encoder is: one or more raw columns in, one tensor column out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from pipelines.config.features import EncoderSettings
from pipelines.dataset.schema import Role, TensorColumn, from_numpy
from pipelines.errors import ConfigError
from pipelines.features.statistics import Statistics

Settings = TypeVar("Settings", bound=EncoderSettings)


@dataclass(frozen=True)
class Input:
    """A raw column that an encoder reads, as the training split had it."""

    name: str
    type: pa.DataType
    statistics: Statistics

    @property
    def counts(self) -> pa.Table:
        assert self.statistics.counts is not None, f"{self.name} was fitted without counts"
        return self.statistics.counts

    @property
    def moments(self) -> Statistics:
        """Mean, deviation, minimum and maximum. Raises ConfigError if there is no number to take them from."""
        if not self.statistics.values:
            raise ConfigError(f"column {self.name} has no number in the training split, only NULL, NaN or ±∞; leave it out")
        return self.statistics

    @property
    def sample(self) -> np.ndarray:
        """Sorted float64. Raises ConfigError as `moments` does."""
        assert self.moments.sample is not None, f"{self.name} was fitted without a sample"
        return self.moments.sample


class Encoder(ABC, Generic[Settings]):
    """Settings, and the state that `fit` learned: plain JSON, all that is needed to encode a row anywhere."""

    def __init__(self, settings: Settings, state: dict[str, Any]) -> None:
        self.settings = settings
        self.state = state

    @classmethod
    def needs(cls, settings: Settings) -> frozenset[str]:
        """The statistics of each input that `fit` wants: of "moments", "sample", and one of `statistics.COUNTED`."""
        return frozenset()

    @classmethod
    @abstractmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        """Why raw columns of this type cannot be encoded, and the remedy; empty if they can."""

    @classmethod
    def fit(cls, settings: Settings, inputs: Sequence[Input]) -> dict[str, Any]:
        """What is to be remembered of the training split. Raises ConfigError if nothing can be learned from it."""
        return {}

    @abstractmethod
    def column(self, name: str, role: Role) -> TensorColumn:
        """The tensor column that `encode` makes."""

    @abstractmethod
    def encode(self, *inputs: pa.Array) -> pa.Array:
        """The rows as `field(…).type`; NULL where the encoder refuses the row. Row by row: slices encode alike."""

    def field(self, name: str, role: Role) -> pa.Field:
        """The Arrow field of what `encode` makes."""
        return self.column(name, role).field

    def example(self, kind: pa.DataType) -> Any:
        """A raw value of this type that can be encoded; None where zeros can, in the column's shape."""
        return None

    def decode(self, values: np.ndarray) -> np.ndarray:
        """Encoded values, shape (rows, …), back in the query's units, as far as encoding kept them."""
        return values

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the encoded numbers, where those are classes."""
        return tuple(self.state.get("classes", ()))

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Rows of each class in the training split."""
        return tuple(self.state.get("counts", ()))


class Packer(Encoder[Settings]):
    """An encoder whose rows multiply: `encode` gives a list for every row, of any length, and `windows` cuts lists into
    values of the tensor column. ETL hands it all lists of a part, in the part's order; the served model a row's alone.
    """

    @property
    @abstractmethod
    def tokens(self) -> tuple[bytes, ...]:
        """What each number stands for, as UTF-8."""

    def field(self, name: str, role: Role) -> pa.Field:
        return pa.field(name, pa.list_(pa.from_numpy_dtype(np.dtype(self.column(name, role).dtype))))

    @abstractmethod
    def made_of(self, documents: int, tokens: int) -> int:
        """How many windows so many lists make, of so many tokens together; ETL holds what it wrote against it."""

    @abstractmethod
    def windows(self, lists: Sequence[np.ndarray]) -> np.ndarray:
        """Values of shape (windows, *column.shape), a function of the lists and their order alone."""


def masked(values: np.ndarray, refused: np.ndarray) -> pa.Array:
    """An Arrow array of `values`, shape (rows,), with NULL in the refused rows."""
    return pa.array(values, mask=refused if refused.any() else None)


def masked_tensor(values: np.ndarray, refused: np.ndarray) -> pa.Array:
    """An Arrow array of `values`, shape (rows, …), a tensor column's value per row, with NULL in the refused rows."""
    tensors = from_numpy(TensorColumn(name="", dtype=str(values.dtype), shape=values.shape[1:]), values)
    if not refused.any():
        return tensors
    return pa.FixedSizeBinaryArray.from_buffers(tensors.type, len(tensors), [pa.array(~refused).buffers()[1], tensors.buffers()[1]])
