"""PostgreSQL: the rows of a table, a view or a query in one snapshot of the database, which all tasks of Spark import.

`settings` names it. `address` reads the URL, and `server` connects to it and words its errors. `snapshot` is the transaction of the driver,
and those of the tasks that import its snapshot. `columns` says how each type is sent and which values fit no column of Spark, and `arrays`
nests the flat values of arrays. `relation` is what is read, which `parts` cuts into ranges, a task each; `fingerprint` counts and hashes
their rows, which is their identity, and `reading` reads them. `table` puts this together, and `draft` is for `lockstep init`.
"""
