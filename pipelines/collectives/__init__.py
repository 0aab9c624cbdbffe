"""Sums over workers that come out the same, bit for bit, for any number of them.

1. `context`     a worker among the others: its rank, their number, its device; `agree` is for small values of theirs.
2. `tree`        the fixed binary tree over shards, as pure functions of spans.
3. `transports`  carry partial sums between workers: point to point, or through memory that one machine's workers share.
4. `all_reduce`  joins both: the workers' partial sums become one sum, in the background of a backward pass where that helps.
"""
