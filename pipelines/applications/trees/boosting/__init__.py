"""Strategy `boosting`: workers grow decision trees together, round by round, each on its own rows.

1. `rows`       keeps the rows of a worker in memory; its epochs are rounds.
2. `gradients`  computes each row's gradient and curvature, on a grid on which sums over rows are exact.
3. `machines`   is LightGBM: it sums histograms over workers, and finds the decisions; `connections` has them meet, and `growth`
                reads their trees.
4. `boosting`   is the strategy; `partial_sums` keeps an evaluation's outputs by earlier trees.

Trees are bitwise the same for any number of workers: histograms are sums, and the sums are exact.
"""
