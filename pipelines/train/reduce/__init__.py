"""Tree all-reduce: sums over workers that are bitwise equal for any number of workers.

1. `context`     a worker's rank, world size and device; it exchanges small values, and marks the functions that wait for other workers.
2. `tree`        the fixed binary tree over shards, as pure functions of spans.
3. `transports`  carry partial sums between workers: point to point, or through memory that one machine's workers share.
4. `all_reduce`  combines both, in the background of a backward pass where that is faster.

`dtensor` has what the tensors need of which every worker holds a part.
"""
