"""Metrics: their names and directions, and what adds them up.

1. `table`         names all of them, with their directions.
2. `accumulation`  adds them up over batches and workers; `further` are those that a config asks for, and `moments` computes and combines
                   means and variances.
3. `values`        are their results: a number, or the reason why there is none.
"""
