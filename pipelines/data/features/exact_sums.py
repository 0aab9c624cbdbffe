"""Exact sums, independent of the order of the rows and of their division into batches.

Spark's avg and stddev of doubles differ in their last bits between one partition and four, and so would the digest of the dataset.
The values of a batch are split into slices of bits that float64 sums exactly (Rump, Ogita and Oishi 2008, "Accurate floating-point
summation", part I). Squares are split into product and error (Dekker 1971, "A floating-point technique for extending the available
precision"). The sums of the slices are added as Python integers.
"""

from math import frexp, isqrt, ldexp

import numpy as np

# A float64 is an integer multiple of 2**-1074, a product of two a multiple of 2**-2148.
UNIT_BITS = 1074
# Rows summed at a time: 2**15 float64 and their temporaries fit into the cache of the processor.
_ROW_BITS = 15
# Outside 2**±400 the error of a square could exceed the range of float64; such values are summed one by one.
_RANGE_BITS = 400


def sums(values: np.ndarray) -> tuple[int, int]:
    """Σx in units of 2**-1074 and Σx² in units of 2**-2148, for finite float64 values of shape (rows,)."""
    total = squares = 0
    for start in range(0, len(values), 1 << _ROW_BITS):
        rows = values[start : start + (1 << _ROW_BITS)]
        magnitude = np.abs(rows)
        top = float(magnitude.max())
        if top > 2.0**_RANGE_BITS or np.count_nonzero(magnitude < 2.0**-_RANGE_BITS) > np.count_nonzero(magnitude == 0):
            is_extreme = (magnitude > 2.0**_RANGE_BITS) | ((magnitude < 2.0**-_RANGE_BITS) & (magnitude > 0))
            extremes = [to_units(value) for value in rows[is_extreme].tolist()]
            rows = rows[~is_extreme]
            total += sum(extremes)
            squares += sum(value * value for value in extremes)
            top = float(np.abs(rows).max(initial=0.0))
        exponent = frexp(top)[1]
        product, error = _square(rows)
        total += _sum(rows, exponent)
        squares += (_sum(product, 2 * exponent) + _sum(error, 2 * exponent - 53)) << UNIT_BITS
    return total, squares


def root(numerator: int, denominator: int) -> float:
    """√(numerator / denominator), correctly rounded. An inexact integer root of 55 bits or more is made odd. It then rounds to the same
    float64 as the true root: Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"."""
    shift = (numerator.bit_length() - denominator.bit_length() - 109) // 2
    numerator, denominator = (numerator, denominator << 2 * shift) if shift >= 0 else (numerator << -2 * shift, denominator)
    integer_root = isqrt(numerator // denominator)
    odd = integer_root | (integer_root * integer_root * denominator != numerator)
    return float(odd << shift) if shift >= 0 else odd / (1 << -shift)


def to_units(value: float) -> int:
    """A float64 as an integer, in units of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT_BITS + 1 - denominator.bit_length())


def _sum(values: np.ndarray, exponent: int) -> int:
    """Σx in units, for at most 2**_ROW_BITS values below 2**exponent in magnitude.

    Adding and subtracting σ = 2**(exponent + _ROW_BITS) rounds a value to a multiple of σ · 2**-53. The sum of these is below σ, so float64
    holds it exactly. The remainders are below σ · 2**-53 and are summed in the same way."""
    total = 0
    while values.any():
        sigma = ldexp(1.0, exponent + _ROW_BITS)
        high = values + sigma
        high -= sigma
        total += to_units(float(high.sum()))
        values = values - high
        exponent += _ROW_BITS - 53
    return total


def _square(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x² as product + error, both float64, without rounding."""
    product = values * values
    shifted = values * 134_217_729.0  # 2**27 + 1: Veltkamp's split into two halves of 26 bits
    high = shifted - (shifted - values)
    low = values - high
    return product, ((high * high - product) + 2.0 * high * low) + low * low
