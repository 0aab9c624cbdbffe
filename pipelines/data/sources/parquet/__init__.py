"""Parquet.

1. `parquet`  is the table, which derives from the files that Spark reads.
2. `footers`  are checked first; `columns` finds what the columns of each file are.
3. `groups`   reads files of different types, which it widens.
"""
