"""How tensors meet across workers: sums that come out the same, bit for bit, for any number of workers.

1. `place`       where a worker stands among the others.
2. `tree`        the fixed binary tree over shards, as pure functions of spans.
3. `transports`  how workers come to each other's nodes of it: sent, or in memory that one machine's workers share.
4. `all_reduce`  joins both: the workers' nodes become one sum, beside a backward pass where that helps.
"""
