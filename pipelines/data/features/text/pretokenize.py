"""Splits text into pieces to count: characters, words for byte-pair encoding, and words between white space."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import pre_tokenizers

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
"""Splits text into words as GPT-2 does (Radford et al. 2019), each with the space before it, and maps each byte of their UTF-8 to a
printable character."""
LINE_BREAK = "\n"

# Characters that stand for bytes: printable bytes of Latin-1 stand for themselves, code points from 256 on for the other bytes.
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_UNPRINTABLE = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + number): byte for number, byte in enumerate(_UNPRINTABLE)}


def word_bytes(word: str) -> bytes:
    """The bytes of a word of BYTE_LEVEL."""
    return bytes(_BYTES[character] for character in word)


def code_points(text: str) -> np.ndarray:
    """Code points of the characters, uint32 of shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def character_counts(values: pa.Array) -> pa.Table:
    """(value, count) of each character in the texts."""
    codes, counts = np.unique(code_points("".join(filter(None, values.to_pylist()))), return_counts=True)
    return _count_table(pa.array(map(chr, codes.tolist()), pa.string()), pa.array(counts))


def byte_word_counts(values: pa.Array) -> pa.Table:
    """(value, count) of each word in the texts, in the characters of BYTE_LEVEL."""
    words = [word for text in values.to_pylist() if text for word, _ in BYTE_LEVEL.pre_tokenize_str(text)]
    counts = pc.value_counts(pa.array(words, pa.string()))
    return _count_table(counts.field("values"), counts.field("counts"))


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
    return _count_table(pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64()))


def _count_table(values: pa.Array, counts: pa.Array) -> pa.Table:
    return pa.table({"value": values, "count": counts.cast(pa.int64())})
