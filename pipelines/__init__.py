"""Lockstep: raw tables to a tracked model, as a pure function of (dataset digest, config).

1. `config`    reads one YAML file, the pipeline, and the command line's overrides.
2. `etl`       Spark reads the raw tables of `sources`, refuses bad rows, fits `features`, shuffles, and writes
3. `dataset`   an immutable version: Parquet parts, a row-group index, a manifest with a digest of the rows.
4. `loader`    turns a version into batches, in an order that depends on nothing but its arguments.
5. `tasks`     say what is learned: model, loss, metrics; `learning` joins one to the version that it learns from.
6. `train`     is the loop of every worker: `parallel` computes its steps, over the sums of `collectives`; `checkpoint` saves it.
7. `launch`    gives the loop to the workers of a Ray cluster, and sees it through kills, restarts and interrupts.
8. `tracking`  keeps one true MLflow run of it, and `serve` the model that takes raw rows; `rowwise` applies the query to them.

`api` and `commands` are the ways in. `baseline` fits Spark's linear models to the same rows, `installed` compares machines'
versions, `compat` holds every private name of other libraries that is needed, `weights` turns a model's weights into bytes,
`progress` draws bars and prints lines, `atomic` writes files whole or not at all, `philox` makes random words, `interrupts` handles
SIGINT and SIGTERM, and `errors` holds the exceptions that all of them raise.

A module imports only from layers below its own; `tests/unit/test_layers.py` holds the list.
"""
