"""Encoders of categorical values: vocabulary, hash, binary, label."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.features.base import COUNTS, Encoder, Input, ListEncoder, array_with_nulls, list_first
from pipelines.data.features.raw import categories, is_category, is_number, numbers
from pipelines.data.versions.schema import Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config.features.base import EncoderSettings
    from pipelines.config.features.categories import BinarySettings, HashSettings, LabelSettings, VocabularySettings  # noqa: F401

Settings = TypeVar("Settings", bound="EncoderSettings")


class CategoryEncoder(Encoder[Settings]):
    """Base class of encoders that map text, or values that Arrow can format as text, to numbers."""

    statistics = frozenset({COUNTS})

    @classmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        return "" if is_category(kind) else "it takes text, numbers, booleans and times; CAST the column to STRING in the query"


class Vocabulary(ListEncoder["VocabularySettings"], CategoryEncoder["VocabularySettings"]):
    """State: `values`, most frequent first, numbered from 1. They are stored in the manifest, which grows by about ten megabytes for a
    million words; use `hash` for larger vocabularies."""

    list_name, first_number = "values", 1
    placeholder = {"values": ["a"]}

    @classmethod
    def fit(cls, settings: VocabularySettings, inputs: Sequence[Input]) -> dict[str, Any]:
        counts = inputs[0].counts
        frequent = counts.filter(pc.greater_equal(counts["count"], settings.min_count)).slice(0, settings.max_size)
        return {"values": frequent["value"].to_pylist()}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="int32", role=role, cardinality=len(self._texts) + 1)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        return pc.add(_indices(inputs[0], self._texts).fill_null(-1), pa.scalar(1, pa.int32()))

    @property
    def method(self) -> str:
        return f"{len(self._texts):,} values have numbers from 1 ({list_first(self.state['values'])}); 0 is all else"


class Hash(CategoryEncoder["HashSettings"]):
    """First 8 bytes of the BLAKE2b hash of the UTF-8 text, as a little-endian number, modulo `buckets`. NULL is hashed as the byte FF,
    which no UTF-8 text contains."""

    statistics = frozenset()

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="int32", role=role, cardinality=self.settings.buckets)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        def bucket(word: bytes) -> int:
            return int.from_bytes(blake2b(word, digest_size=8).digest(), "little") % self.settings.buckets

        distinct = inputs[0].dictionary_encode()
        text = categories(distinct.dictionary).cast(pa.binary()).to_pylist()
        buckets = pa.array([bucket(b"\xff" if word is None else word) for word in text], pa.int32())
        return buckets.take(distinct.indices).fill_null(bucket(b"\xff"))


class Binary(Encoder["BinarySettings"]):
    """State: `classes`, the names of 0 and 1, and their `counts`. NULL and all other numbers are refused."""

    statistics = frozenset({COUNTS})
    placeholder = {"classes": ["false", "true"], "counts": [1, 1]}

    @classmethod
    def refusal(cls, settings: BinarySettings, kind: pa.DataType) -> str:
        return "" if is_number(kind) else "it takes true and false, or 1 and 0; write a condition in the query: income = '>50K' AS rich"

    @classmethod
    def fit(cls, settings: BinarySettings, inputs: Sequence[Input]) -> dict[str, Any]:
        boolean = types.is_boolean(inputs[0].type)
        counts = [0, 0]
        for value, count in zip(*(inputs[0].counts[name].to_pylist() for name in ("value", "count")), strict=True):
            number = ("false", "true").index(value) if boolean else float(value)
            if number in (0, 1):
                counts[int(number)] += count
        if not sum(counts):
            raise ConfigError(f"column {inputs[0].name} is neither 0 nor 1 in any row of the training split; use label")
        return {"classes": ["false", "true"] if boolean else ["0", "1"], "counts": counts}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="uint8", role=role, cardinality=2)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        values = numbers(inputs[0])
        return array_with_nulls((values == 1).astype(np.uint8), (values != 0) & (values != 1))

    @property
    def method(self) -> str:
        return "1 for true, 0 for false"

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values.astype(bool) if self.classes == ("false", "true") else values


class Label(ListEncoder["LabelSettings"], CategoryEncoder["LabelSettings"]):
    """State: `classes` and their `counts`. Integer classes are sorted as numbers, all others as text."""

    list_name = "classes"

    @classmethod
    def fit(cls, settings: LabelSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        counts = dict(zip(*(inputs[0].counts[name].to_pylist() for name in ("value", "count")), strict=True))
        if not counts:
            raise ConfigError(
                f"column {inputs[0].name} is NULL in every row of the training split, so it has no classes; use another column"
            )
        classes = list(settings.order) or sorted(counts, key=int if types.is_integer(inputs[0].type) else str)
        if not any(name in counts for name in classes):
            raise ConfigError(
                f"column {inputs[0].name} has none of the classes {', '.join(classes)} in the training split, but "
                f"{', '.join(sorted(counts)[:5])}; name those in order"
            )
        return {"classes": classes, "counts": [counts.get(name, 0) for name in classes]}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"classes": [str(number) for number in range(classes)], "counts": [1] * classes}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="int64", role=role, cardinality=len(self._texts))

    def encode(self, *inputs: pa.Array) -> pa.Array:
        return _indices(inputs[0], self._texts).cast(pa.int64())

    @property
    def method(self) -> str:
        return f"{len(self._texts):,} classes, in this order: {list_first(self.state['classes'])}"


def _indices(values: pa.Array, words: pa.Array) -> pa.Array:
    """Index of each value in `words` as int32, or NULL. Only distinct values are converted to text."""
    if types.is_string(values.type):
        return pc.index_in(values, words)
    distinct = values.dictionary_encode()
    return pc.index_in(categories(distinct.dictionary), words).take(distinct.indices)
