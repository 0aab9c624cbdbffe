"""The query as the served model runs it.

1. `translation`  translates it from Spark's SQL.
2. `check`        compares the translation with Spark on rows of the source, and on extreme ones, `check_rows`.
"""
