"""Base classes of encoders, which turn one or more raw columns into one tensor column, and how they show values where they describe
themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from pipelines.data.features.media_files import UnreadableError
from pipelines.data.versions.schema import Role, TensorColumn, from_numpy
from pipelines.errors import ConfigError

if TYPE_CHECKING:  # an exported folder has encoders without their settings, which need pydantic
    from pipelines.config.features.base import EncoderSettings
    from pipelines.data.features.statistics import Statistics

MOMENTS, SAMPLE, COUNTS, WORDS, CHARACTERS, BYTE_WORDS = "moments", "sample", "counts", "words", "characters", "byte_words"
LINE_WORDS, LOWERCASE_WORDS = "line_words", "lowercase_words"
COUNTED = frozenset({COUNTS, WORDS, CHARACTERS, BYTE_WORDS, LINE_WORDS, LOWERCASE_WORDS})
"""Statistics that are counts: of values, of the words of a text or elements of an array, or of other pieces of text. A column can have
only one of them."""

Settings = TypeVar("Settings", bound="EncoderSettings")
_MOST_VALUES, _MOST_CHARACTERS = 6, 40


@dataclass(frozen=True)
class Input:
    """A raw column that an encoder reads, with its statistics in the training split."""

    name: str
    type: pa.DataType
    statistics: Statistics

    @property
    def counts(self) -> pa.Table:
        assert self.statistics.counts is not None, f"{self.name} was fitted without counts"
        return self.statistics.counts

    @property
    def moments(self) -> Statistics:
        """Mean, deviation, minimum and maximum. Raises ConfigError if the column has no finite number."""
        if not self.statistics.values:
            raise ConfigError(f"column {self.name} has no number in the training split, only NULL, NaN or ±∞; leave it out")
        return self.statistics

    @property
    def sample(self) -> np.ndarray:
        """Sorted float64 array. Raises ConfigError as `moments` does."""
        assert self.moments.sample is not None, f"{self.name} was fitted without a sample"
        return self.moments.sample


class Encoder(ABC, Generic[Settings]):
    """Settings, and the state from `fit`, in plain JSON. Together they are sufficient to encode rows anywhere."""

    pieces: ClassVar[str] = "values"
    """What the counts of `needs` are of, in the plural: values, or what each value is split into."""
    statistics: ClassVar[frozenset[str]] = frozenset()
    """What `needs` says, unless it depends on the settings."""
    placeholder: ClassVar[Mapping[str, Any]] = {}
    """What `placeholder_state` gives, unless it depends on the number of classes."""
    has_classes_in_values: ClassVar[bool] = False
    """Whether a value is many classes, as of a mask. ETL then counts them once the rows of the training split are encoded."""

    def __init__(self, settings: Settings, state: dict[str, Any]) -> None:
        self.settings = settings
        self.state = state

    @classmethod
    def needs(cls, settings: Settings) -> frozenset[str]:
        """The statistics of each input that `fit` needs: any of "moments" and "sample", at most one of `COUNTED`,
        and that of a `TermRule`."""
        return cls.statistics

    @classmethod
    @abstractmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        """Why columns of this type cannot be encoded, and the remedy; empty if they can."""

    @classmethod
    def learning_refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        """Why the encoder cannot be fitted on columns of this type, and the remedy; empty if it can."""
        return cls.refusal(settings, kind)

    @classmethod
    def fit(cls, settings: Settings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Compute the state from the training split. Raises ConfigError if the split has no usable values."""
        return {}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        """A state with the fewest values that gives `column` its shape and kind before the encoder is fitted, as if a label had so many
        `classes`: the settings do not tell the sizes of vocabularies."""
        return dict(cls.placeholder)

    @classmethod
    def largest_state(cls, settings: Settings, classes: int) -> dict[str, Any]:
        """A state as large as the settings allow, where they limit a vocabulary; by default `placeholder_state`. With it, a plan counts
        what a model costs before there is a dataset version."""
        return cls.placeholder_state(classes)

    @abstractmethod
    def column(self, name: str, role: Role) -> TensorColumn:
        """The tensor column that `encode` produces."""

    @abstractmethod
    def encode(self, *inputs: pa.Array) -> pa.Array:
        """Encode rows as `field(…).type`, with NULL for each refused row. Each row is encoded independently of the others."""

    def fault(self, *values: Any) -> str:
        """Why a row with these values of the inputs is refused, in a few words; empty if there is no more to say than that it is."""
        return ""

    @property
    def method(self) -> str:
        """How an encoded value comes from the raw ones, in a line for the page about the data; by default, the settings that are chosen and
        the sizes of the state."""
        settings = self.settings.model_dump(mode="json", exclude={*self.settings.excluded_from_identity, "encoder", "column"})
        facts = [(key, value) for key, value in [*settings.items(), *self.state.items()] if value not in ("", None, [], "none")]
        return ", ".join(f"{key} {show_briefly(value)}" for key, value in facts) or "as it is"

    @property
    def note(self) -> str:
        """A line about the fitted encoder, for a person who may want to change its settings; empty for nothing."""
        return ""

    def field(self, name: str, role: Role) -> pa.Field:
        """The Arrow field that `encode` produces."""
        return self.column(name, role).field

    def example(self, kind: pa.DataType) -> Any:
        """A raw value of this type that can be encoded; None if zeros in the shape of the column can."""
        return None

    def decode(self, values: np.ndarray) -> np.ndarray:
        """Convert encoded values, shape (rows, …), back to the units of the query, as far as encoding is invertible."""
        return values

    def names(self, count: int) -> list[str]:
        """Names of the encoded numbers below `count`, for tables."""
        return list(self.classes) or ["other" if value is None else str(value) for value in self.decode(np.arange(count)).tolist()]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the encoded numbers stand for; empty if they are no classes."""
        return tuple(self.state.get("classes", ()))

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Rows of each class in the training split."""
        return tuple(self.state.get("counts", ()))


class ListEncoder(Encoder[Settings]):
    """Base class of encoders to the numbers of texts in a list, which the state has under `list_name`; the first has `first_number`."""

    list_name: ClassVar[str]
    first_number: ClassVar[int] = 0

    def __init__(self, settings: Settings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        self._texts = pa.array(state[self.list_name], pa.string())

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The texts of numbers; None for the numbers before the first."""
        return np.array([*[None] * self.first_number, *self.state[self.list_name]], dtype=object)[values]


class FileEncoder(Encoder[Settings]):
    """Base class of encoders that make each file an array, one file after the other."""

    @abstractmethod
    def read(self, *contents: Any) -> np.ndarray:
        """The encoded values of a row, of the shape of the column. Raises UnreadableError with the reason why there are none; a missing
        file has an empty one."""

    def encode(self, *inputs: pa.Array) -> pa.Array:
        column = self.column("", "feature")
        encoded, is_refused = np.zeros((len(inputs[0]), *column.shape), column.dtype), np.zeros(len(inputs[0]), bool)
        for row in range(len(encoded)):
            try:
                encoded[row] = self.read(*(values[row].as_py() for values in inputs))
            except UnreadableError:
                is_refused[row] = True
        return tensors_with_nulls(encoded, is_refused)

    def fault(self, *values: Any) -> str:
        try:
            self.read(*values)
        except UnreadableError as error:
            return str(error)
        return ""


class Packer(Encoder[Settings]):
    """An encoder that packs documents into windows: `encode` gives a list of tokens for each row, and `windows` cuts these lists into
    values of the tensor column. ETL passes all lists of a part file, in their order; the served model passes one row at a time."""

    unknown_word: int | None = None
    """If tokens are words, the most frequent first, the token of those that are not in the vocabulary: the text cannot be restored. None if
    tokens are the text."""

    @property
    @abstractmethod
    def tokens(self) -> tuple[bytes, ...]:
        """The UTF-8 bytes of each token; of words, with the white space before them."""

    def field(self, name: str, role: Role) -> pa.Field:
        return pa.field(name, pa.list_(pa.from_numpy_dtype(np.dtype(self.column(name, role).dtype))))

    @abstractmethod
    def window_count(self, documents: int, tokens: int) -> int:
        """Number of windows for this number of documents with this total of tokens. ETL compares it with what it has written."""

    @abstractmethod
    def windows(self, lists: Sequence[np.ndarray]) -> np.ndarray:
        """Values of shape (windows, *column.shape); they depend only on the lists and their order."""


def array_with_nulls(values: np.ndarray, refused: np.ndarray) -> pa.Array:
    """An Arrow array of `values`, shape (rows,), with NULL in the refused rows."""
    return pa.array(values, mask=refused if refused.any() else None)


def tensors_with_nulls(values: np.ndarray, refused: np.ndarray) -> pa.Array:
    """An Arrow array of `values`, shape (rows, …), a tensor column's value per row, with NULL in the refused rows."""
    dtype: Any = str(values.dtype)
    tensors = from_numpy(TensorColumn(name="", dtype=dtype, shape=values.shape[1:]), values)
    if not refused.any():
        return tensors
    return pa.FixedSizeBinaryArray.from_buffers(tensors.type, len(tensors), [pa.array(~refused).buffers()[1], tensors.buffers()[1]])


def show_briefly(value: Any) -> str:
    """A number with four digits, a long list by its size, and the beginning of any other value."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    if isinstance(value, list | dict):
        return f"of {len(value):,} entries" if len(str(value)) > _MOST_CHARACTERS else str(value)
    return str(value)[:_MOST_CHARACTERS]


def list_first(values: Collection[Any]) -> str:
    """The first values in a line, with an ellipsis for all others. Line breaks and other characters that do not print are escaped."""
    first = [show_briefly(value)[:20] for value in list(values)[:_MOST_VALUES]]
    printable = [text if text.isprintable() else repr(text)[1:-1] for text in first]
    return ", ".join(printable) + (", …" if len(values) > _MOST_VALUES else "")
