"""Encoders that tokenize text and pack it into windows of equal length: bytes and characters.

The documents of a part file are concatenated. END follows each document, so that a model learns where documents end, and also
precedes the first one. The stream is cut into windows of `length` + 1 tokens, each of which begins with the last token of the
previous window: every token of every document, and every END, is predicted exactly once. The last window is padded with END. No
document is empty, so an END after an END is always padding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.base import CHARACTERS, Input, Packer
from pipelines.data.features.text.pretokenize import code_points
from pipelines.data.versions.schema import END, Dtype, Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.applications.language.settings import CharactersSettings, TokensSettings

Settings = TypeVar("Settings", bound="TokensSettings")

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
