"""Encoders of numbers.

1. `scaling`    `standardize`, `minmax`, `log1p` and `identity` of single numbers.
2. `quantiles`  encoders by the quantiles of a column: `quantile`, `normal_quantile` and `robust`.
3. `fourier`    sines and cosines of a few numbers, such as coordinates.
"""
