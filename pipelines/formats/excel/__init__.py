"""Excel: a sheet of each .xlsx file. `settings` says which; `workbook` reads it without Spark, and `table` in Spark's tasks; `draft` is for
`lockstep init`.
"""
