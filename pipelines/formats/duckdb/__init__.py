"""DuckDB: the rows of a table, a view or a query in each database file. `settings` names it; `database` reads it without Spark, and `table`
in Spark's tasks; `draft` is for `lockstep init`.
"""
