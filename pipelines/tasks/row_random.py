"""Random numbers for each row of a batch, as a pure function of the key of the row. They do not depend on its place in the batch or
on the random state of torch, so they are the same for any number of workers and after any restart.

The key is mixed by the finaliser of SplitMix64 (Steele, Lea and Flood 2014); the result seeds SplitMix64, whose outputs are the
numbers, one for each (purpose, index). All operations are on integers, so every device computes the same numbers.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def random_integers(keys: Tensor, count: int, below: Tensor | int, purpose: int = 0) -> Tensor:
    """Random integers from 0 to `below` − 1, int64 of shape (rows, count). `below` is at most 2**31, or a tensor that broadcasts.

    `keys` is ROW_KEYS, int64 of shape (rows,). Different values of `purpose`, below 2**16, give independent numbers for one row.
    The bias is at most below / 2**31, which is negligible.
    """
    return (_words(keys, count, purpose) >> 33 & 2**31 - 1) * below >> 31


def content_keys(*values: Tensor) -> Tensor:
    """Keys computed from the content of rows, int64 of shape (rows,), for evaluation, where batches have no ROW_KEYS.

    `values` are integers of shape (rows, …). Rows with equal content have equal keys.
    """
    keys = torch.zeros_like(values[0][:, 0], dtype=torch.int64)
    for column in torch.cat([value.flatten(1).long() for value in values], dim=1).unbind(1):
        keys = _mix(keys + column + _GOLDEN)
    return keys


def _words(keys: Tensor, count: int, purpose: int) -> Tensor:
    """64 random bits, int64 of shape (rows, count)."""
    # The bits of a sum. TorchInductor computes sums and products of places in its own integers, which do not wrap at 64 bits.
    places = torch.arange(1, count + 1, device=keys.device) | purpose << 40
    return _mix(_mix(keys)[:, None] + places * _GOLDEN)


def _mix(bits: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        bits = (bits ^ _right(bits, shift)) * factor
    return bits ^ _right(bits, 31)


def _right(bits: Tensor, shift: int) -> Tensor:
    """Logical right shift; the shift of torch is arithmetic and would copy the sign."""
    return bits >> shift & (1 << 64 - shift) - 1
