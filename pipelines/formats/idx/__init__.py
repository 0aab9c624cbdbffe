"""IDX, the files of MNIST and its kin. `settings` name the format; `idx_format` reads a file without Spark, `table` joins files as columns,
and `draft` is for `lockstep init`.
"""
