"""Rows of numbers and categories.

1. `tabular`         is a perceptron over them, and over the terms of texts; perhaps with a `number_embedding`, or an `ensemble` of several
                     that share weights.
2. `trees`           is a `forest` of decision trees over the same, which rows walk down in `traversal`; `contributions` are what each input
                     adds to its output.
3. `recommendation`  is matrix factorization or DLRM over users and items.
"""
