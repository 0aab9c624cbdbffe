"""Evaluates a row-by-row query without Spark: the served model applies it to raw rows before encoding.

1. `translate`  translates Spark's SQL to a DuckDB expression for each column, and lists subexpressions, so that types and casts can be
                compared too.
2. `engine`     computes such expressions over Arrow tables, with DuckDB.

ETL stores the translation in the manifest if both engines agree on a sample of the source and on extreme rows.
"""
