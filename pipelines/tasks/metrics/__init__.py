"""Metrics: their names and directions, and what adds them up.

1. `table`         names all of them, with their directions, and has their results: a number, or the reason why there is none.
2. `accumulation`  adds them up over batches and workers; `further` are those that a config asks for.
"""
