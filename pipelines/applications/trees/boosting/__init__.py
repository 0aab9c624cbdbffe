"""Strategy `boosting`: workers grow decision trees together, round by round, each on its own rows.

1. `boosting`   is the strategy. It keeps a worker's rows in memory, and an evaluation's outputs by earlier trees; epochs are rounds.
2. `gradients`  computes each row's gradient and curvature, on a grid on which sums over rows are exact.
3. `machines`   is LightGBM, which sums histograms over workers, and finds the decisions; how its machines meet, and what trees have grown.

Trees are bitwise the same for any number of workers: histograms are sums, and the sums are exact.
"""
