"""`dataset`: the columns, rows and splits of a version.

1. `dataset`  is the section, with all kinds of `dataset.split`.
2. `windows`  is the section of columns that are made of several rows, and compares it with `dataset`.
"""
