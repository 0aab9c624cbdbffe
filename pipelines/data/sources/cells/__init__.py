"""Formats whose cells have types of their own.

1. `cell_table`  is their base, for `excel` and `sqlite`.
2. `cells`       converts their values.
3. `workbook` and `database` read the files without Spark, by the interface of `cell_files`.
"""
