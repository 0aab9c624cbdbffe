"""Encoders that tokenize text and pack it into windows of equal length: bytes, characters, and byte pairs.

The documents of a part file are concatenated. END follows each document, so that a model learns where documents end, and also
precedes the first one. The stream is cut into windows of `length` + 1 tokens, each of which begins with the last token of the
previous window: every token of every document, and every END, is predicted exactly once. The last window is padded with END. No
document is empty, so an END after an END is always padding.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from tokenizers import Tokenizer, models, trainers

from pipelines.applications.language.settings import BpeSettings, BytesSettings, CharactersSettings, TokensSettings
from pipelines.data.features.base import Input, Packer
from pipelines.data.features.statistics import BYTE_WORDS, CHARACTERS
from pipelines.data.features.text.pretokenize import BYTE_LEVEL, code_points, word_bytes
from pipelines.data.versions.schema import END, Dtype, Role, TensorColumn
from pipelines.errors import ConfigError

Settings = TypeVar("Settings", bound=TokensSettings)

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


class Bytes(TokenEncoder[BytesSettings]):
    """Byte b of the UTF-8 text is token b + 1."""

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        return (b"", *(bytes([value]) for value in range(256)))

    def numbers(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint16) + np.uint16(1)


class Characters(TokenEncoder[CharactersSettings]):
    """State: `characters` of the training split, sorted by code point; the first one is token 2."""

    pieces = "characters"

    @classmethod
    def needs(cls, settings: CharactersSettings) -> frozenset[str]:
        return frozenset({CHARACTERS})

    @classmethod
    def fit(cls, settings: CharactersSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        characters = inputs[0].counts["value"].to_pylist()
        if not characters:
            raise ConfigError(f"column {inputs[0].name} has no character in the training split; use another column")
        return {"characters": "".join(sorted(characters))}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"characters": "a"}

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


WORDS_TRAINED_ON = 2**24
"""If the training split has more words, their counts are scaled down to this total; merges depend only on ratios."""
_ALPHABET = sorted(BYTE_LEVEL.alphabet())


class Bpe(TokenEncoder[BpeSettings]):
    """Byte pairs (Sennrich et al. 2016, "Neural machine translation of rare words with subword units").

    State: `merges` in their order, as `left right` in the characters of BYTE_LEVEL. Tokens after END are the 256 bytes, sorted by
    their characters, and then the result of each merge."""

    pieces = "words"

    @classmethod
    def needs(cls, settings: BpeSettings) -> frozenset[str]:
        return frozenset({BYTE_WORDS})

    @classmethod
    def fit(cls, settings: BpeSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Learn the merges from the counted words, about a million distinct words per minute."""
        if not len(inputs[0].counts):
            raise ConfigError(f"column {inputs[0].name} has no word in the training split; use another column")
        tokenizer = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(vocab_size=settings.vocabulary - 1, initial_alphabet=_ALPHABET, show_progress=False)
        tokenizer.train_from_iterator(_repeat_words(inputs[0].counts), trainer)
        return {"merges": [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]}

    @classmethod
    def placeholder_state(cls, classes: int) -> dict[str, Any]:
        return {"merges": []}

    def __init__(self, settings: BpeSettings, state: dict[str, Any]) -> None:
        super().__init__(settings, state)
        merges = [tuple(merge.split(" ")) for merge in state["merges"]]
        self._words = tuple(dict.fromkeys([*_ALPHABET, *("".join(pair) for pair in merges)]))
        vocabulary = {word: number for number, word in enumerate(self._words, END + 1)}
        self._tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        self._tokenizer.pre_tokenizer = BYTE_LEVEL

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        return (b"", *map(word_bytes, self._words))

    def numbers(self, text: str) -> np.ndarray:
        return np.array(self._tokenizer.encode(text).ids)


def _repeat_words(counts: pa.Table) -> Iterator[list[str]]:
    """Repeat each word by its count, scaled down to WORDS_TRAINED_ON in total."""
    total = sum(counts["count"].to_pylist())
    for word, count in zip(counts["value"].to_pylist(), counts["count"].to_pylist(), strict=True):
        yield [word] * (count if total <= WORDS_TRAINED_ON else max(1, count * WORDS_TRAINED_ON // total))
