"""Encoders that tokenize text and pack it into windows of equal length: bytes, characters, and words of a vocabulary.

The documents of a part file are concatenated. END follows each document, so that a model learns where documents end, and also precedes the
first one. The stream is cut into windows of `length` + 1 tokens, each of which begins with the last token of the previous window: every
token of every document, and every END, is predicted exactly once. The last window is padded with END. No document is empty, so an END
after an END is always padding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.features.base import CHARACTERS, LINE_WORDS, LOWERCASE_WORDS, Input, Packer, list_first
from pipelines.data.features.text_pieces import LINE_BREAK, code_points, line_words
from pipelines.data.versions.schema import END, Dtype, Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.applications.language.settings import CharactersSettings, TokensSettings, WordsSettings


Settings = TypeVar("Settings", bound="TokensSettings")

UNKNOWN = END + 1
UNKNOWN_TEXT = "<unk>"
"""How the unknown word is written, in a text too: Penn Treebank and WikiText have it in place of rare words."""
_OTHER = 1
"""For `characters`: the token of all characters that are not in the training split; it counts as, and decodes to, the byte `?`."""


class TokenEncoder(Packer[Settings]):
    """Base class of token encoders. NULL and texts without a token are refused."""

    @classmethod
    def refusal(cls, settings: Settings, kind: pa.DataType) -> str:
        return "" if types.is_string(kind) or types.is_large_string(kind) else "it takes text; CAST the column to STRING in the query"

    def example(self, kind: pa.DataType) -> str:
        return "a"

    @abstractmethod
    def numbers(self, text: str) -> np.ndarray:
        """The tokens of a document without END, integers of shape (tokens,)."""

    @property
    def dtype(self) -> Dtype:
        """The narrowest dtype that holds all tokens."""
        return "uint8" if len(self.tokens) <= 2**8 else "uint16" if len(self.tokens) <= 2**16 else "int32"

    def column(self, name: str, role: Role) -> TensorColumn:
        return TensorColumn(name=name, dtype=self.dtype, shape=(self.settings.length + 1,), role=role, cardinality=len(self.tokens))

    def encode(self, *inputs: pa.Array) -> pa.Array:
        texts = inputs[0].to_pylist()
        documents = [self.numbers(text).astype(self.dtype) if text else np.empty(0, self.dtype) for text in texts]
        lengths = np.array([len(document) for document in documents], np.int64)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        values = np.concatenate([np.empty(0, self.dtype), *documents])
        refused = lengths == 0
        return pa.ListArray.from_arrays(offsets, pa.array(values), mask=pa.array(refused) if refused.any() else None)

    @property
    def method(self) -> str:
        return f"windows of {self.settings.length} tokens, of which there are {len(self.tokens):,}"

    def window_count(self, documents: int, tokens: int) -> int:
        return -(-(tokens + documents) // self.settings.length)

    def windows(self, lists: Sequence[np.ndarray]) -> np.ndarray:
        length, count = self.settings.length, self.window_count(len(lists), sum(map(len, lists)))
        stream = np.full(count * length + 1, END, self.dtype)
        at = 1
        for document in lists:
            stream[at : at + len(document)] = document
            at += len(document) + 1
        return np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length].copy() if count else stream[:0].reshape(0, length + 1)


class Bytes(TokenEncoder["TokensSettings"]):
    """Byte b of the UTF-8 text is token b + 1."""

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        return (b"", *(bytes([value]) for value in range(256)))

    def numbers(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint16) + np.uint16(1)


class Characters(TokenEncoder["CharactersSettings"]):
    """State: `characters` of the training split, sorted by code point; the first one is token 2."""

    pieces = "characters"
    statistics = frozenset({CHARACTERS})
    placeholder = {"characters": "a"}

    @classmethod
    def fit(cls, settings: CharactersSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        characters = inputs[0].counts["value"].to_pylist()
        if not characters:
            raise ConfigError(f"column {inputs[0].name} has no character in the training split; use another column")
        return {"characters": "".join(sorted(characters))}

    def __init__(self, settings: CharactersSettings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        self._codes = code_points(state["characters"])

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        return (b"", b"?", *(character.encode() for character in self.state["characters"]))

    def numbers(self, text: str) -> np.ndarray:
        codes = code_points(text)
        indices = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[indices] == codes, indices + _OTHER + 1, _OTHER)


class Words(TokenEncoder["WordsSettings"]):
    """State: `words`, most frequent first, ties by the text, and how many of the words of the training split are unknown, of how many.
    The first word is token 2."""

    pieces = "words"
    placeholder = {"words": ["a"], "unknown": 0, "total": 1}
    unknown_word = UNKNOWN

    @classmethod
    def largest_state(cls, settings: WordsSettings, classes: int) -> dict[str, Any]:
        return {**cls.placeholder, "words": [f"word{number}" for number in range(settings.vocabulary)]}

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
