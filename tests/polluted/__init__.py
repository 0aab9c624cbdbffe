"""Ten clean tables, each polluted in every way that the files of strangers are: what `lockstep init` drafts of them, and what ETL reads.

1. `forms`       lists how numbers, money and dates are written.
2. `pollutions`  has the clean tables, and the pollutions as functions of a table, a row and a seed.
3. `outcomes`    drafts a polluted file, reads it by the draft as ETL does, and compares the rows with the clean ones.

`PYTHONPATH=.:tests python -m polluted` tries all of them and prints a table by pollution.
"""
