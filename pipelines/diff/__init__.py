"""Finds what changed between two versions of a dataset, or between a version and rows to predict.

1. `sides`          finds the versions. `table_input` reads raw rows in the columns that a version's encoders take.
2. `row_changes`    counts rows that were added, removed, altered or moved. `sample_rows` reads some of them.
3. `column_samples` reads columns as numbers or categories, and `drift` says whether they differ by more than chance explains.
4. `manifest_changes` compares schemas, encoders, settings and refused rows.
5. `comparison`     puts these together, and `compare_paths` does so for what two paths name. `terminal_text` and `page` show it.
6. `gate`           fails an ETL whose rows have drifted too far.
"""
