"""Avro: the records of .avro files. `settings` says which; `records` reads a file with fastavro, and `table` does in Spark's tasks; `draft`
is for `lockstep init`.
"""
