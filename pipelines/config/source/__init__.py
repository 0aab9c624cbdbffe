"""`source`: raw tables and the query over them.

1. `source`   is the section.
2. `formats`  lists the formats of raw tables by name. `table_base` is what every table has.
3. `options`  checks options of Spark's readers, and `ddl` the types of a schema.
"""
