"""Encoders of numbers.

1. `scaling`    `standardize`, `minmax`, `log1p` and `identity` of single numbers.
2. `quantiles`  the encoders that know a column's distribution: `quantile`, `normal_quantile` and `robust`.
3. `fourier`    sines and cosines of a few numbers, such as coordinates.
"""
