"""Encoders of text as tokens: bytes, characters, byte pairs and words; and the windows of a document."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any
from unicodedata import category

import numpy as np

from pipelines.serving.export.standalone.columns import FAULTS, Column, encoder
from pipelines.serving.export.standalone.words import lower_case

_END = 0
_NO_SPACES = "\x1c\x1d\x1e\x1f"
"""Separators, which Python takes for white space and Unicode does not."""
_LINE_WORD = re.compile(r"\n|\S+")
_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


@encoder("bytes")
def byte_tokens(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Byte b of the UTF-8 text is token b + 1."""
    return _documents(column, lambda text: [byte + 1 for byte in text.encode()])


@encoder("characters")
def character_tokens(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The known characters are tokens from 2; 1 stands for all others."""
    places = {character: number for number, character in enumerate(state["characters"], 2)}
    return _documents(column, lambda text: [places.get(character, 1) for character in text])


@encoder("bpe")
def byte_pair_tokens(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Byte pairs (Sennrich et al. 2016) inside the words of GPT-2 (Radford et al. 2019)."""
    letters = byte_letters()
    merges = [tuple(merge.split(" ")) for merge in state["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    places = {word: number for number, word in enumerate(dict.fromkeys([*sorted(letters), *map("".join, merges)]), _END + 1)}

    @lru_cache(2**16)
    def word_tokens(word: str) -> list[int]:
        return [places[piece] for piece in merge_pairs([letters[byte] for byte in word.encode()], ranks)]

    return _documents(column, lambda text: [token for word in gpt2_words(text) for token in word_tokens(word)])


@encoder("words")
def word_tokens(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Words stand between white space, and line breaks are words too: known ones are tokens from 2; 1 stands for all others."""
    places = {word: number for number, word in enumerate(state["words"], 2)}

    def tokens(text: str) -> list[int]:
        words = _LINE_WORD.findall(lower_case(text) if settings["lowercase"] else text)
        return [places.get(word, 1) for word in words]

    return _documents(column, tokens)


FAULTS["words"] = lambda settings, value: "it has only white space" if value else ""


def _documents(column: Column, tokens: Callable[[str], list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """An array of tokens for each row; NULL and texts without a token are refused."""
    documents = np.empty(len(column.values), object)
    for row, text in enumerate(column.values):
        documents[row] = np.array(tokens(text) if text else [], np.int64)
    return documents, np.array([len(numbers) == 0 for numbers in documents], bool)


def byte_letters() -> list[str]:
    """The printable character that stands for each byte: itself in Latin-1, or one from code point 256 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    substitutes = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(substitutes)) for byte in range(256)]


def merge_pairs(pieces: list[str], ranks: Mapping[tuple[str, ...], int]) -> list[str]:
    """Merge the pair that was learned first, wherever it stands, until no pair is known."""
    while len(pieces) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(pairwise(pieces)))
        if rank == len(ranks):
            break
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


def gpt2_words(text: str) -> Iterator[str]:
    """Contractions, and runs of letters, of numbers and of other characters, each with the space before it; white space is between them."""
    start = 0
    while start < len(text):
        contraction = next((suffix for suffix in _CONTRACTIONS if text.startswith(suffix, start)), None)
        if contraction:
            end = start + len(contraction)
        else:
            first = start + (text[start] == " " and start + 1 < len(text) and _sort(text[start + 1]) != "space")
            end = _run(text, first)
            if _sort(text[first]) == "space" and end < len(text) and end - start > 1:
                end -= 1  # the last space belongs to the word behind it
        yield text[start:end]
        start = end


def _run(text: str, start: int) -> int:
    """The end of the run of characters of one sort."""
    end, sort = start + 1, _sort(text[start])
    while end < len(text) and _sort(text[end]) == sort:
        end += 1
    return end


@lru_cache(2**16)
def _sort(character: str) -> str:
    if character.isspace() and character not in _NO_SPACES:
        return "space"
    return {"L": "letter", "N": "number"}.get(category(character)[0], "other")
