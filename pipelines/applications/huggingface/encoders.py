"""Encoder of texts by the tokenizer of a pretrained model, which the tokenizers library reads from its tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipelines.config.paths import missing_file, read_from_folder
from pipelines.data.features.base import Encoder, Input, tensors_with_nulls
from pipelines.data.features.raw import is_text
from pipelines.data.versions.schema import FREE, Role, TensorColumn
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.applications.huggingface.settings import TokenizerSettings

_PLACEHOLDER = '{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'


class FolderTokenizer(Encoder["TokenizerSettings"]):
    """State: `tokenizer`, the text of tokenizer.json. Its padding and truncation are those of the settings."""

    placeholder = {"tokenizer": _PLACEHOLDER}

    @classmethod
    def refusal(cls, settings: TokenizerSettings, kind: pa.DataType) -> str:
        return "" if is_text(kind) else "it takes text; CAST the column to STRING in the query"

    @classmethod
    def fit(cls, settings: TokenizerSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Read the file, and not the rows. Raises ConfigError if it is another one than the settings', is no tokenizer, or if no token of
        a text would fit beside those that it adds."""
        if not settings.folder:
            raise ConfigError("folder is not set; name the folder with the tokenizer.json of this digest")
        content = read_from_folder(settings.folder, settings.file, "folder")
        if content is None:
            raise ConfigError(missing_file(settings.folder, settings.file, "folder"))
        if (digest := sha256(content).hexdigest()) != settings.digest:
            raise ConfigError(
                f"digest is {settings.digest[:12]}, but {settings.folder}/{settings.file} has {digest[:12]}; restore the file, or remove "
                "digest for a new dataset"
            )
        try:
            text = content.decode()
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more special
            why = " ".join(str(error).split())
            raise ConfigError(
                f"folder is {settings.folder}, whose {settings.file} cannot be read: {why}; write it again by save_pretrained of a fast one"
            ) from error
        if (added := tokenizer.num_special_tokens_to_add(False)) >= settings.length:
            raise ConfigError(
                f"length is {settings.length}, and the tokenizer adds {added} tokens to each text; raise it to {added + 1} or more"
            )
        return {"tokenizer": text}

    def column(self, name: str, role: Role) -> TensorColumn:
        highest = max(_tokenizer(self.state["tokenizer"]).get_vocab(with_added_tokens=True).values())
        return TensorColumn(name=name, dtype="int32", shape=(self.settings.length,), role=role, cardinality=highest + 2)

    def encode(self, *inputs: pa.Array) -> pa.Array:
        tokenizer, length = _tokenizer(self.state["tokenizer"], self.settings.length), self.settings.length
        texts = inputs[0].to_pylist()
        encoded = np.full((len(texts), length), FREE, np.int32)
        for row, text in enumerate(texts):
            if text is not None:
                numbers = tokenizer.encode(text).ids
                encoded[row, : len(numbers)] = numbers
                encoded[row, : len(numbers)] += 1
        return tensors_with_nulls(encoded, ~(encoded != FREE).any(1))

    @property
    def method(self) -> str:
        return f"the first {self.settings.length} tokens of a pretrained model's tokenizer, numbered from 1; 0 is padding"

    def fault(self, *values: Any) -> str:
        return "" if values[0] is None else "it has no token"

    def example(self, kind: pa.DataType) -> str:
        return "a"

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The tokens, as the tokenizer writes them; None for padding."""
        words = {number + 1: word for word, number in _tokenizer(self.state["tokenizer"]).get_vocab(with_added_tokens=True).items()}
        by_number = np.full(max(words) + 1, None, object)
        by_number[list(words)] = list(words.values())
        return by_number[values]


@lru_cache(maxsize=8)  # to read one takes a tenth of a second, and every task of Spark's encodes many batches
def _tokenizer(text: str, length: int | None = None) -> Tokenizer:
    """The tokenizer without padding, whose texts have at most so many tokens."""
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if length:
        tokenizer.enable_truncation(length)
    return tokenizer
