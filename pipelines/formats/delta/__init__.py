"""Delta Lake: a version of a table. `settings` names it; `place` is where it lies; `log` reads its commits, and `snapshot` plans its files
on the driver; `parquet_rows` reads these in Spark's tasks, `columns` gives them the table's types; `increments` finds what was added
between two versions; `table` joins all of that, and `draft` is for `lockstep init`.
"""
