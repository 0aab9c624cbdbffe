"""Formats whose cells have types of their own.

1. `cell_table`  is their base, for `excel` and `sqlite`, which read their files without Spark, by the interface of `cell_files`.
2. `cells`       converts their values.
"""
