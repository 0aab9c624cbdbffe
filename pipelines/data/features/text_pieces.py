"""Splits texts into pieces to count: characters, words between white space, and terms, which are runs of words and runs of the characters
of a word.

Words have no white space, so a run of several, joined by spaces, is no word. A run of characters begins with `#`, and a word that begins
so has no further character: no two terms of different kinds are equal."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.raw import elements, words

LINE_BREAK = "\n"
_BYTES_AT_ONCE = 4 * 2**20
"""Bytes of text that are split at once into terms, which take some thirty times as much."""
_TERMS = "terms"


def code_points(text: str) -> np.ndarray:
    """Code points of the characters, uint32 of shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def character_counts(values: pa.Array) -> pa.Table:
    """(value, count) of each character in the texts."""
    codes, counts = np.unique(code_points("".join(filter(None, values.to_pylist()))), return_counts=True)
    return count_table(pa.array(map(chr, codes.tolist()), pa.string()), pa.array(counts))


def line_words(text: str) -> list[str]:
    """The words of a text in their order: they stand between white space, and each line break is a word too."""
    first, *later = text.split(LINE_BREAK)  # a regular expression takes twice as long
    words = first.split()
    for line in later:
        words.append(LINE_BREAK)
        words += line.split()
    return words


def line_word_counts(values: pa.Array, lowercase: bool = False) -> pa.Table:
    """(value, count) of each of the `line_words` of the texts."""
    counts = Counter[str]()
    for text in (pc.utf8_lower(values) if lowercase else values).to_pylist():
        counts.update(line_words(text or ""))
    return count_table(pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64()))


def count_table(values: pa.Array, counts: pa.Array) -> pa.Table:
    return pa.table({"value": values, "count": counts.cast(pa.int64())})


@dataclass(frozen=True)
class TermRule:
    """Which terms a text has."""

    words: tuple[int, ...]
    """Numbers of consecutive words."""
    characters: tuple[int, ...]
    """Numbers of consecutive characters of a word between `<` and `>`."""
    lowercase: bool

    @property
    def statistic(self) -> str:
        """The name of a statistic: in how many texts each term is."""
        return " ".join([_TERMS, *(",".join(map(str, lengths)) for lengths in (self.words, self.characters)), str(int(self.lowercase))])


def term_rule(statistic: str) -> TermRule | None:
    """The rule that has a statistic of this name; None for other statistics."""
    name, *parts = statistic.split(" ")
    if name != _TERMS:
        return None
    *lengths, lowercase = parts
    word_lengths, character_lengths = (tuple(map(int, filter(None, text.split(",")))) for text in lengths)
    return TermRule(word_lengths, character_lengths, lowercase == "1")


def split_terms(texts: pa.Array, rule: TermRule) -> Iterator[tuple[int, pa.Array, np.ndarray]]:
    """Split texts, some at a time: the place of their first row, their terms, each as often as it occurs, and the row of each among them,
    int64 of shape (terms,)."""
    ends = np.cumsum(pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < len(texts):
        bytes_before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, bytes_before + _BYTES_AT_ONCE, "right")), start + 1)
        part = texts.slice(start, end - start)
        values, offsets = elements(words(part))
        if rule.lowercase:
            values = pc.utf8_lower(values)
        rows = np.repeat(np.arange(len(part)), np.diff(offsets))
        kinds = [_word_runs(values, rows, length) for length in rule.words]
        kinds += [_character_runs(values, rows, rule.characters)] if rule.characters else []
        yield (
            start,
            pa.chunked_array([terms for terms, _ in kinds], pa.string()).combine_chunks(),
            np.concatenate([places for _, places in kinds]),
        )
        start = end


def text_counts(texts: pa.Array, rule: TermRule) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Distinct terms of some of the texts at a time, and in how many of these each is, int64 of shape (terms,)."""
    for _, terms, rows in split_terms(texts, rule):
        distinct = terms.dictionary_encode()
        size = max(len(distinct.dictionary), 1)
        pairs = np.unique(rows * size + distinct.indices.to_numpy())
        yield distinct.dictionary, np.bincount(pairs % size, minlength=len(distinct.dictionary))


def _word_runs(values: pa.Array, rows: np.ndarray, length: int) -> tuple[pa.Array, np.ndarray]:
    """All runs of so many words within a row, joined by spaces, and the row of each."""
    if length == 1:
        return values, rows
    count = max(len(values) - length + 1, 0)
    is_within = rows[:count] == rows[length - 1 :]
    parts = [values.slice(place, count).filter(pa.array(is_within)) for place in range(length)]
    return pc.binary_join_element_wise(*parts, " "), rows[:count][is_within]


def _character_runs(values: pa.Array, rows: np.ndarray, lengths: tuple[int, ...]) -> tuple[pa.Array, np.ndarray]:
    """All runs of characters of each word between `<` and `>`, as in fastText (Bojanowski et al. 2017), behind `#`; and the row of each.
    Each distinct word is cut once."""
    distinct = values.dictionary_encode()
    marked = [f"<{word}>" for word in distinct.dictionary.to_pylist()]
    cut = [[f"#{word[place : place + length]}" for length in lengths for place in range(len(word) - length + 1)] for word in marked]
    by_word = pa.array(cut, pa.list_(pa.string())).take(distinct.indices)
    return by_word.flatten(), np.repeat(rows, pc.list_value_length(by_word).to_numpy(zero_copy_only=False))
