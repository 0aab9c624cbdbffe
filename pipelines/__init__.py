"""Lockstep: raw tables to a tracked model, as a pure function of (dataset digest, config).

The way of the data:

1. `config`      reads one YAML file, which describes a pipeline, and the overrides of the command line.
2. `data`        knows raw tables (`sources`), encoders (`features`), the format of a dataset on disk (`versions`), and batches (`loader`).
3. `etl`         is the Spark job: it reads, refuses bad rows, splits, fits encoders, shuffles, and writes a dataset version.
                 `spark` has what every Spark job needs.
4. `tasks`       define model, loss and metrics.
5. `train`       is the loop of every worker, with the strategies `ddp` and `exact`, the all-reduce and checkpoints.
                 `strategies` has the others, a folder each.
6. `launch`      is the driver: it runs the loop on the workers of a Ray cluster, through failures, restarts and interrupts. `monitor` finds
                 slow and stuck workers.
                 `tuning` searches settings by many trainings, most of which stop early.
7. `tracking`    records each run in MLflow.
8. `serving`     is all about a finished model: it takes raw rows, in batches and over HTTP, in the registry, and as exports.
9. `report`      draws figures and writes pages from what runs leave behind.
10. `lifecycle`  is about versions and models after they are made: it attests, erases and removes. `diff` says what changed between two
                 versions.

`applications`, `formats` and `exports` are slices on top of all this, a folder each: trees, language models, detection, forecasts and
more; Excel, SQLite and others; targets of exports beside ONNX. No room names one.
`init` drafts the first config of a pipeline from its data, `rehearsal` tries it on a sample of them, and `demo` runs a first pipeline.
`doctor` examines whether a machine can run it. `notebook` takes frames in, and answers with frames.

`planning` predicts a training from plain numbers: its hours, memory and cost, in any layout on any cluster; and it simulates steps and
whole runs of many workers. `costs` counts what a task's model computes and keeps, and `planner` lists the layouts for a config.

`api` and `commands` are the ways in, from Python and from a shell; `command_line` reads a command's arguments, and ends its process.
`extending` has what parts of one's own import. `errors` is the tree of exceptions, and `ranking` has the areas under curves that metrics,
pages, gates and drafts share; `runtime` has signals, files, progress, versions, and the insides of libraries.

A module imports only from rooms below its own; `tests/unit/test_layers.py` has the list.
"""
