"""Encoder of sequences of categories: the words of a text, or the elements of an array."""

from __future__ import annotations

from collections.abc import Sequence as Inputs
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.base import WORDS, Encoder, Input, list_first, tensors_with_nulls
from pipelines.data.features.raw import elements, is_category, is_list, is_text, words
from pipelines.data.versions.schema import FIRST, FREE, UNKNOWN, Role, TensorColumn

if TYPE_CHECKING:
    from pipelines.config.features.categories import SequenceSettings


class Sequence(Encoder["SequenceSettings"]):
    """State: `words`, most frequent first, numbered from FIRST. NULL is refused; a text without words is accepted."""

    pieces = "words"

    @classmethod
    def needs(cls, settings: SequenceSettings) -> frozenset[str]:
        return frozenset({WORDS})

    @classmethod
    def refusal(cls, settings: SequenceSettings, kind: pa.DataType) -> str:
        if is_text(kind) or (is_list(kind) and is_category(kind.value_type)):
            return ""
        return "it takes text, or arrays of text or numbers; split(…) in the query turns text into an array"

    @classmethod
    def fit(cls, settings: SequenceSettings, inputs: Inputs[Input]) -> dict[str, Any]:
        counts = pa.concat_tables([column.counts for column in inputs])
        if settings.lowercase and is_text(inputs[0].type):
            counts = pa.table([pc.utf8_lower(counts["value"]), counts["count"]], schema=counts.schema)
        summed = counts.group_by("value", use_threads=False).aggregate([("count", "sum")])
        frequent = summed.filter(pc.greater_equal(summed["count_sum"], settings.min_count))
        ordered = frequent.sort_by([("count_sum", "descending"), ("value", "ascending")])
        return {"words": ordered["value"].slice(0, settings.max_size).to_pylist()}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"words": ["a"]}

    def __init__(self, settings: SequenceSettings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        self._words = pa.array(state["words"], pa.string())

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="int32", shape=(self.settings.length,), role=role, cardinality=FIRST + len(self._words))

    def encode(self, *inputs: pa.Array) -> pa.Array:
        categories, offsets = elements(words(inputs[0]) if is_text(inputs[0].type) else inputs[0])
        if self.settings.lowercase and is_text(inputs[0].type):
            categories = pc.utf8_lower(categories)
        numbers = pc.add(pc.index_in(categories, self._words).fill_null(UNKNOWN - FIRST), FIRST).to_numpy(zero_copy_only=False)
        counts, length = np.diff(offsets), self.settings.length
        row = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(numbers)) - np.repeat(offsets[:-1], counts)
        if self.settings.keep == "last":
            place += length - np.repeat(counts, counts)
        fits = (place >= 0) & (place < length)
        encoded = np.full((len(counts), length), FREE, np.int32)
        encoded[row[fits], place[fits]] = numbers[fits]
        return tensors_with_nulls(encoded, inputs[0].is_null().to_numpy(zero_copy_only=False))

    @property
    def method(self) -> str:
        words = self.state["words"]
        return f"the {self.settings.keep} {self.settings.length} words, of which {len(words):,} have numbers ({list_first(words)})"

    def decode(self, values: np.ndarray) -> np.ndarray:
        return np.array([None, None, *self.state["words"]], dtype=object)[values]
