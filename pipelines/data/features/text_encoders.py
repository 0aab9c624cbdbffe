"""Encoders of texts: the sequence of their words, or of the elements of an array, and their terms, whatever the order."""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.base import WORDS, Input, ListEncoder, list_first, tensors_with_nulls
from pipelines.data.features.raw import elements, is_category, is_list, is_text, words
from pipelines.data.features.text_pieces import TermRule, split_terms
from pipelines.data.versions.schema import FIRST, FREE, UNKNOWN, Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config.features.categories import SequenceSettings, TermsSettings

FIRST_TERM = 1


class Sequence(ListEncoder["SequenceSettings"]):
    """State: `words`, most frequent first, numbered from FIRST. NULL is refused; a text without words is accepted."""

    pieces = "words"
    list_name, first_number = "words", FIRST
    statistics = frozenset({WORDS})
    placeholder = {"words": ["a"]}

    @classmethod
    def refusal(cls, settings: SequenceSettings, kind: pa.DataType) -> str:
        if is_text(kind) or (is_list(kind) and is_category(kind.value_type)):
            return ""
        return "it takes text, or arrays of text or numbers; split(…) in the query turns text into an array"

    @classmethod
    def fit(cls, settings: SequenceSettings, inputs: abc.Sequence[Input]) -> dict[str, Any]:
        counts = pa.concat_tables([column.counts for column in inputs])
        if settings.lowercase and is_text(inputs[0].type):
            counts = pa.table([pc.utf8_lower(counts["value"]), counts["count"]], schema=counts.schema)
        summed = counts.group_by("value", use_threads=False).aggregate([("count", "sum")])
        frequent = summed.filter(pc.greater_equal(summed["count_sum"], settings.min_count))
        ordered = frequent.sort_by([("count_sum", "descending"), ("value", "ascending")])
        return {"words": ordered["value"].slice(0, settings.max_size).to_pylist()}

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype="int32", shape=(self.settings.length,), role=role, cardinality=FIRST + len(self._texts))

    def encode(self, *inputs: pa.Array) -> pa.Array:
        categories, offsets = elements(words(inputs[0]) if is_text(inputs[0].type) else inputs[0])
        if self.settings.lowercase and is_text(inputs[0].type):
            categories = pc.utf8_lower(categories)
        numbers = pc.add(pc.index_in(categories, self._texts).fill_null(UNKNOWN - FIRST), FIRST).to_numpy(zero_copy_only=False)
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


class Terms(ListEncoder["TermsSettings"]):
    """State: `terms`, those of most texts first, numbered from 1; `documents`, the number of texts of the training split with each; and
    `texts`, the number of all. NULL is refused; a text without known terms is accepted."""

    list_name, first_number = "terms", FIRST_TERM
    placeholder = {"terms": ["a"], "documents": [1], "texts": 1}

    @classmethod
    def needs(cls, settings: TermsSettings) -> frozenset[str]:
        return frozenset({_rule(settings).statistic})

    @classmethod
    def refusal(cls, settings: TermsSettings, kind: pa.DataType) -> str:
        return "" if is_text(kind) else "it takes text; array_join(…, ' ') in the query makes text of an array, CAST of other values"

    @classmethod
    def fit(cls, settings: TermsSettings, inputs: abc.Sequence[Input]) -> dict[str, Any]:
        """Raises ConfigError if no term is in enough texts."""
        counts = inputs[0].statistics.terms[_rule(settings).statistic]
        frequent = counts.filter(pc.greater_equal(counts["count"], settings.min_count)).slice(0, settings.max_size)
        if not len(frequent):
            raise ConfigError(
                f"column {inputs[0].name} has no term that {settings.min_count} texts of the training split have; lower min_count, or use "
                "another column"
            )
        return {"terms": frequent["value"].to_pylist(), "documents": frequent["count"].to_pylist(), "texts": inputs[0].statistics.values}

    def column(self, name: str, role: Role) -> TensorColumn:
        shape, cardinality = (self.settings.length, 2), FIRST_TERM + len(self._texts)
        return TensorColumn(name=name, dtype="int32", shape=shape, role=role, cardinality=cardinality, counted=True)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        encoded = np.full((len(inputs[0]), self.settings.length, 2), FREE, np.int32)
        for start, terms, rows in split_terms(inputs[0], _rule(self.settings)):
            indices = pc.index_in(terms, self._texts)
            is_known = indices.is_valid().to_numpy(zero_copy_only=False)
            width = FIRST_TERM + len(self._texts)
            numbers = indices.drop_null().to_numpy().astype(np.int64) + FIRST_TERM
            pairs, counts = np.unique(rows[is_known] * width + numbers, return_counts=True)
            row, number = pairs // width, pairs % width
            place = np.arange(len(row)) - np.searchsorted(row, row)
            fits = place < self.settings.length
            encoded[start + row[fits], place[fits]] = np.stack([number, counts], axis=1)[fits]
        return tensors_with_nulls(encoded, inputs[0].is_null().to_numpy(zero_copy_only=False))

    @property
    def method(self) -> str:
        terms = self.state["terms"]
        return f"at most {self.settings.length} of the {len(terms):,} terms that have numbers ({list_first(terms)}), with their counts"

    def example(self, kind: pa.DataType) -> str:
        """A text of some frequent and some rare words."""
        words = [term for term in self.state["terms"] if not term.startswith("#") or len(term) == 1]
        return " ".join([*words[:5], *words[-3:]])


def _rule(settings: TermsSettings) -> TermRule:
    return TermRule(settings.words, settings.characters, settings.lowercase)
