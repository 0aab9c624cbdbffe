"""Metrics: their names and directions, and what adds them up.

1. `table`           names all of them, with their directions, and has their results: a number, or the reason why there is none.
2. `classification`  computes areas (AUC), balanced accuracy and F-beta; `accumulation` adds up means, ratios and errors, over batches and
                     workers.
"""
