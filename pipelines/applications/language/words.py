"""Encoder of texts as windows of words of a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.applications.language.encoders import TokenEncoder
from pipelines.data.features.base import LINE_WORDS, LOWERCASE_WORDS, Input
from pipelines.data.features.phrases import list_first
from pipelines.data.features.text.pretokenize import LINE_BREAK, line_words
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.applications.language.settings import WordsSettings

UNKNOWN = END + 1
UNKNOWN_TEXT = "<unk>"
"""How the unknown word is written, in a text too: Penn Treebank and WikiText have it in place of rare words."""


class Words(TokenEncoder["WordsSettings"]):
    """State: `words`, most frequent first, ties by the text, and how many of the words of the training split are unknown, of how many.
    The first word is token 2."""

    pieces = "words"
    unknown_word = UNKNOWN

    @classmethod
    def needs(cls, settings: WordsSettings) -> frozenset[str]:
        return frozenset({LOWERCASE_WORDS if settings.lowercase else LINE_WORDS})

    @classmethod
    def fit(cls, settings: WordsSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        counts, total = inputs[0].counts, inputs[0].statistics.pieces
        counts = counts.filter(pc.not_equal(counts["value"], UNKNOWN_TEXT)).slice(0, settings.vocabulary)
        if not len(counts):
            raise ConfigError(f"column {inputs[0].name} has no word in the training split; use another column")
        return {"words": counts["value"].to_pylist(), "unknown": total - pc.sum(counts["count"]).as_py(), "total": total}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"words": ["a"], "unknown": 0, "total": 1}

    def __init__(self, settings: WordsSettings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        self._numbers = {word: number for number, word in enumerate(state["words"], UNKNOWN + 1)}

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The line break as it is, and each word behind a space."""
        words = [UNKNOWN_TEXT, *self.state["words"]]
        return (b"", *((word if word == LINE_BREAK else f" {word}").encode() for word in words))

    @property
    def method(self) -> str:
        words = self.state["words"]
        return f"windows of {self.settings.length} words, of which {len(words):,} have tokens ({list_first(words)}); {self._unknown_words}"

    @property
    def note(self) -> str:
        if self.state["unknown"]:
            return f"{self._unknown_words}: {len(self.state['words']):,} have a token"
        return (
            f"all {self.state['total']:,} words of the training split are in the vocabulary, so a model does not learn how probable an "
            "unknown one is, and those of other splits cost it much; lower vocabulary"
        )

    @property
    def _unknown_words(self) -> str:
        unknown, total = self.state["unknown"], self.state["total"]
        return f"{unknown:,} of the {total:,} words of the training split ({unknown / total:.2%}) are unknown"

    def numbers(self, text: str) -> np.ndarray:
        return np.array([self._numbers.get(word, UNKNOWN) for word in line_words(text)], np.int64)

    def fault(self, *values: Any) -> str:
        return "it has only white space" if values[0] else ""

    def encode(self, *inputs: pa.Array) -> pa.Array:
        return super().encode(pc.utf8_lower(inputs[0]) if self.settings.lowercase else inputs[0])
