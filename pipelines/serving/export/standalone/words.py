"""Encoders of the words of a text, or the elements of an array, in their order; and of the terms of a text, whatever their order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from unicodedata import category

import numpy as np

from pipelines.serving.export.standalone.columns import Column, element_kind, encoder, is_null, texts

_PADDING, _UNKNOWN, _FIRST = range(3)
_LOWER = {"İ": "i"}
"""Lower case is character by character: without Python's two characters for İ, and the σ of a word's end."""


@encoder("sequence")
def sequence(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a fixed length: 0 is padding, 1 an unknown word, the others follow from 2."""
    places = {word: number for number, word in enumerate(state["words"], _FIRST)}
    length, encoded = settings["length"], np.full((len(column.values), settings["length"]), _PADDING, np.int32)
    for row, words in enumerate(_elements(column, settings["lowercase"])):
        numbers = [places.get(word, _UNKNOWN) for word in words]
        if settings["keep"] == "last":
            encoded[row, max(length - len(numbers), 0) :] = numbers[-length:]
        else:
            encoded[row, : len(numbers)] = numbers[:length]
    return encoded, is_null(column)


@encoder("terms")
def terms(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a term's number, from 1, and its count, shape (rows, length, 2); 0 and 0 are free."""
    numbers = {term: number for number, term in enumerate(state["terms"], 1)}
    encoded = np.zeros((len(column.values), settings["length"], 2), np.int32)
    for row, words in enumerate(_elements(column, settings["lowercase"])):
        counts = Counter(numbers[term] for term in text_terms(words, settings["words"], settings["characters"]) if term in numbers)
        pairs = sorted(counts.items())[: settings["length"]]
        encoded[row, : len(pairs)] = np.array(pairs, np.int32).reshape(-1, 2)
    return encoded, is_null(column)


def text_terms(words: Sequence[Any], word_lengths: Sequence[int], character_lengths: Sequence[int]) -> Iterator[str]:
    """The runs of words, and the runs of characters of each word between `<` and `>`, behind `#`."""
    for length in word_lengths:
        for place in range(len(words) - length + 1):
            yield " ".join(words[place : place + length])
    for word in words if character_lengths else ():
        marked = f"<{word}>"
        for length in character_lengths:
            yield from (f"#{marked[place : place + length]}" for place in range(len(marked) - length + 1))


def _elements(column: Column, lowercase: bool) -> Sequence[Sequence[str | None]]:
    kind = element_kind(column.kind)
    if kind is not None:
        return [() if values is None else texts(Column(kind, values)) for values in column.values]
    words = [() if text is None else split_words(text) for text in column.values]
    return [[lower_case(word) for word in text_words] for text_words in words] if lowercase else words


def split_words(text: str) -> list[str]:
    """Runs of letters, digits and `_`, each with the apostrophe before it, and every other character except white space."""
    words, start = [], 0
    while start < len(text):
        end = start
        if text[start] == "'" and start + 1 < len(text) and is_word_character(text[start + 1]):
            end += 1
        while end < len(text) and is_word_character(text[end]):
            end += 1
        end = max(end, start + 1)
        if not text[start].isspace():
            words.append(text[start:end])
        start = end
    return words


@lru_cache(2**16)
def is_word_character(character: str) -> bool:
    """Whether it is a letter, a number, a mark or `_`."""
    return character == "_" or category(character)[0] in "LNM"


def lower_case(word: str) -> str:
    return "".join(_LOWER.get(character) or character.lower() for character in word)
