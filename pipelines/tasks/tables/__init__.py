"""Rows of numbers and categories.

`tabular` is a perceptron over them, and over the terms of texts; perhaps with an embedding of numbers, or an ensemble of several that share
weights.
"""
