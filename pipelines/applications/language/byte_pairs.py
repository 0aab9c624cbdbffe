"""Encoder of text as byte pairs, with the tokenizers library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, models, trainers

from pipelines.applications.language.encoders import TokenEncoder
from pipelines.data.features.base import BYTE_WORDS, Input
from pipelines.data.features.byte_words import BYTE_LEVEL, word_bytes
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.applications.language.settings import BpeSettings

WORDS_TRAINED_ON = 2**24
"""If the training split has more words, their counts are scaled down to this total; merges depend only on ratios."""
_ALPHABET = sorted(BYTE_LEVEL.alphabet())


class Bpe(TokenEncoder["BpeSettings"]):
    """Byte pairs (Sennrich et al. 2016, "Neural machine translation of rare words with subword units").

    State: `merges` in their order, as `left right` in the characters of BYTE_LEVEL. Tokens after END are the 256 bytes, sorted by
    their characters, and then the result of each merge."""

    pieces = "words"
    statistics = frozenset({BYTE_WORDS})
    placeholder = {"merges": []}

    @classmethod
    def largest_state(cls, settings: BpeSettings, classes: int) -> dict[str, Any]:
        pairs = islice(product(_ALPHABET, repeat=2), settings.vocabulary - 1 - len(_ALPHABET))
        return {"merges": [" ".join(pair) for pair in pairs]}

    @classmethod
    def fit(cls, settings: BpeSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Learn the merges from the counted words, about a million distinct words per minute."""
        counts = inputs[0].counts
        if not len(counts):
            raise ConfigError(f"column {inputs[0].name} has no word in the training split; use another column")
        tokenizer = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(vocab_size=settings.vocabulary - 1, initial_alphabet=_ALPHABET, show_progress=False)
        total = sum(counts["count"].to_pylist())
        repeated_words = (
            [word] * (count if total <= WORDS_TRAINED_ON else max(1, count * WORDS_TRAINED_ON // total))
            for word, count in zip(counts["value"].to_pylist(), counts["count"].to_pylist(), strict=True)
        )
        tokenizer.train_from_iterator(repeated_words, trainer)
        return {"merges": [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]}

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
