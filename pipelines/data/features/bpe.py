"""Byte-pair encoding of text (Sennrich et al. 2016, "Neural machine translation of rare words with subword units")."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, models, trainers

from pipelines.config import features as config
from pipelines.data.features.base import Input
from pipelines.data.features.pretokenize import BYTE_LEVEL, word_bytes
from pipelines.data.features.statistics import BYTE_WORDS
from pipelines.data.features.tokens import TokenEncoder
from pipelines.data.versions.schema import END
from pipelines.errors import ConfigError

WORDS_TRAINED_ON = 2**24
"""If the training split has more words, their counts are scaled down to this total; merges depend only on ratios."""
_ALPHABET = sorted(BYTE_LEVEL.alphabet())


class Bpe(TokenEncoder[config.BpeSettings]):
    """State: `merges` in their order, as `left right` in the characters of BYTE_LEVEL. Tokens after END are the 256 bytes, sorted by
    their characters, and then the result of each merge."""

    @classmethod
    def needs(cls, settings: config.BpeSettings) -> frozenset[str]:
        return frozenset({BYTE_WORDS})

    @classmethod
    def fit(cls, settings: config.BpeSettings, inputs: Sequence[Input]) -> dict[str, Any]:
        """Learn the merges from the counted words, about a million distinct words per minute."""
        if not len(inputs[0].counts):
            raise ConfigError(f"column {inputs[0].name} has no word in the training split; use another column")
        tokenizer = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(vocab_size=settings.vocabulary - 1, initial_alphabet=_ALPHABET, show_progress=False)
        tokenizer.train_from_iterator(_repeat_words(inputs[0].counts), trainer)
        return {"merges": [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]}

    def __init__(self, settings: config.BpeSettings, state: dict[str, Any]) -> None:
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
