"""Splits text into words for byte-pair encoding, with the tokenizers library. Encoders without byte pairs do not need it."""

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import pre_tokenizers

from pipelines.data.features.text_pieces import count_table

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
"""Splits text into words as GPT-2 does (Radford et al. 2019), each with the space before it, and maps each byte of their UTF-8 to a
printable character."""

# Characters that stand for bytes: printable bytes of Latin-1 stand for themselves, code points from 256 on for the other bytes.
_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_UNPRINTABLE = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + number): byte for number, byte in enumerate(_UNPRINTABLE)}


def word_bytes(word: str) -> bytes:
    return bytes(_BYTES[character] for character in word)


def byte_word_counts(values: pa.Array) -> pa.Table:
    """(value, count) of each word in the texts, in the characters of BYTE_LEVEL."""
    words = [word for text in values.to_pylist() if text for word, _ in BYTE_LEVEL.pre_tokenize_str(text)]
    counts = pc.value_counts(pa.array(words, pa.string()))
    return count_table(counts.field("values"), counts.field("counts"))
