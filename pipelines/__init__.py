"""Lockstep: raw tables to a tracked model, as a pure function of (dataset digest, config).

1. `config`    reads one YAML file, which describes a pipeline, and the command line's overrides.
2. `etl`       reads the raw tables of `sources` with Spark, refuses bad rows, fits `features`, shuffles, and writes a dataset version.
3. `dataset`   is the format of a version, which is immutable: Parquet parts, a row-group index, a manifest with a digest of the rows.
4. `loader`    turns a version into batches, in an order that depends only on its arguments.
5. `tasks`     define model, loss and metrics; `learning` binds a task to the columns of a version.
6. `train`     is the training loop of every worker. `parallel` computes its steps, with the all-reduce of `collectives`;
               `checkpoint` saves its state.
               `servers` are parameter servers, and the loop of their workers; `federated` trains on the rows of clients, in rounds.
7. `launch`    runs the loop on the workers of a Ray cluster, through failures, restarts and interrupts; `timing` finds slow workers, and
               profiles steps.
8. `tracking`  logs the training as one MLflow run, and `serve` logs the model, which takes raw rows; `rowwise` applies the query to them.
9. `export`    writes the model for other software and hardware; `endpoint` serves it over HTTP; `predict` predicts tables with Spark;
               `registry` makes it the champion if it passes gates.
10. `report`   draws figures and writes pages from what runs leave behind.

`api` and `commands` are the entry points. `baseline` fits Spark's linear models to the same rows; `installed` compares the
versions installed on machines; `compat` has all private names of libraries that are used; `weights` converts a model's weights to
bytes; `progress` shows progress bars; `atomic` writes files atomically; `philox` generates random words; `interrupts` handles SIGINT
and SIGTERM, `output` a reader of standard output that leaves; `errors` defines the exceptions.

A module imports only from layers below its own; `tests/unit/test_layers.py` has the list.
"""
