"""The random words and permutations that the order of rows, and of clients, is made from; a seed decides them."""

import numpy as np

from pipelines.runtime import philox

SLICES, OFFSET, WINDOW, KEYS, CLIENTS, CLIENT_ROWS, NOISE = range(7)
"""The purposes of random words; each has its own streams."""

_KEY_STRIDE = 0xD1342543DE82EF95
"""Between the keys of neighbouring rows; odd, so that no two rows of an epoch share a key."""


def row_keys(seed: int, epoch: int) -> tuple[int, int]:
    """(stride, start), signed 64 bits: a row's key in an epoch is stride · its number + start, modulo 2**64.

    A key is not random itself, since neighbouring rows' keys are a stride apart: random numbers are made by mixing its bits.
    """
    stride, start = np.array([_KEY_STRIDE, words(1, seed, KEYS, epoch)[0]], np.uint64).view(np.int64)
    return int(stride), int(start)


def words(count: int, seed: int, purpose: int, epoch: int, shard: int = 0, window: int = 0) -> np.ndarray:
    """Random words; each purpose, epoch, shard and window has a stream of its own."""
    key = np.array([seed % 2**64, purpose], np.uint64)
    counter = np.array([0, window, shard, epoch], np.uint64)
    return philox.random_words(count, key, counter)


def permutation(count: int, seed: int, purpose: int, epoch: int, shard: int = 0, window: int = 0) -> np.ndarray:
    """A permutation of range(count): the order that sorts random words.

    Each word's low bits are replaced by its index, so that sorting the words also gives the indices. That is three times as fast as
    argsort, and equal words cannot sort differently on another processor.
    """
    low = np.uint64(2 ** max(count - 1, 1).bit_length() - 1)
    shuffled = words(count, seed, purpose, epoch, shard, window)
    shuffled &= ~low
    shuffled |= np.arange(count, dtype=np.uint64)
    shuffled = _sort_words(shuffled)
    shuffled &= low
    return shuffled.view(np.int64)


def _sort_words(distinct: np.ndarray) -> np.ndarray:
    """Sort distinct random words of 64 bits.

    First by their 16 high bits, which NumPy sorts by radix, and then, when few are far from their place, by merging runs:
    100,000 take 11 ns each, and 39 in one sort, whose vector instructions are slow on some processors.
    """
    distinct = distinct.take((distinct >> np.uint64(48)).astype(np.uint16).argsort(kind="stable"))
    distinct.sort(kind="stable")
    return distinct
