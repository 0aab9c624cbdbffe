"""The query where it works row by row, without Spark: what the served model makes of raw rows before its encoders see them.

1. `translate`         brings Spark's SQL to an expression of DuckDB's for each column; what it cannot is `untranslatable`.
2. `expression_parts`  takes them apart, so that types and casts can be compared too.
3. `engine`            computes such expressions over Arrow tables, with DuckDB.

ETL keeps the translation in the manifest where both engines give the same for a sample: rows of the source, and odd ones.
"""
