"""Random numbers for each row of a batch, as a pure function of the row's key: not of its place in the batch, nor of torch's
random state, so that they are the same for any number of workers and after any restart.

A row's key is mixed by SplitMix64's finaliser (Steele, Lea and Flood 2014), and numbers are the outputs of SplitMix64 from
there, one for each (purpose, place). All of it is arithmetic of whole numbers, which every device does alike.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def whole(keys: Tensor, count: int, below: Tensor | int, purpose: int = 0) -> Tensor:
    """int64 of shape (rows, count), each from 0 to `below` − 1, which is at most 2**31, or a tensor that broadcasts to it.

    `keys` is ROW_KEYS, int64 of shape (rows,); `purpose`, below 2**16, keeps apart what one row draws for several reasons.
    The bias of at most below / 2**31 is of no account.
    """
    return (_words(keys, count, purpose) >> 33 & 2**31 - 1) * below >> 31


def content_keys(*values: Tensor) -> Tensor:
    """Keys from what the rows hold, int64 of shape (rows,), for what is drawn where there are no ROW_KEYS, in evaluation.

    `values` are whole numbers of shape (rows, …). Rows of equal content have equal keys.
    """
    keys = torch.zeros_like(values[0][:, 0], dtype=torch.int64)
    for column in torch.cat([value.flatten(1).long() for value in values], dim=1).unbind(1):
        keys = _mixed(keys + column + _GOLDEN)
    return keys


def _words(keys: Tensor, count: int, purpose: int) -> Tensor:
    """64 random bits, int64 of shape (rows, count)."""
    places = torch.arange(1, count + 1, device=keys.device) + (purpose << 40)
    return _mixed(_mixed(keys)[:, None] + places * _GOLDEN)


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        bits = (bits ^ _right(bits, shift)) * factor
    return bits ^ _right(bits, 31)


def _right(bits: Tensor, shift: int) -> Tensor:
    """The bits of unsigned numbers, moved: torch's own shift would fill in the sign."""
    return bits >> shift & (1 << 64 - shift) - 1
