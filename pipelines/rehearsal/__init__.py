"""Tries a drafted config on a sample of its data before it is written, so that neither ETL nor training refuses what `init` drafts.

1. `sampled_tables` writes parts of large files to a temporary folder. Small data are read where they are.
2. `etl_stages`     makes a dataset version of the sample there with ETL's own stages, and checks that the training can begin.
3. `process`        runs that in a process of its own, whose Spark starts while `init` reads the data, and which can be killed at any time.
4. `rehearsal`      sends it the draft, and says what ETL and training would refuse.
"""
