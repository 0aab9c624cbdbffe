"""Runs a training on the workers of a Ray cluster, and handles failures, restarts and interrupts. It hears, and never computes.

1. `run`        is the driver: checks settings, opens the MLflow run, starts the training, logs the model.
   `checks`     is what it refuses before it starts, which ETL also says.
   `folds`      trains the model of each fold of a cross-validation.
   `init_from`  fetches the initial weights from another run, or from files by `weight_files`, if the config names some.
2. `cluster`    joins or starts a Ray cluster, and sets the workers' environment. `own_ray` starts one on this machine, whose files are
                private, with processes that wait for the workers: `preload` imports what they need. `ray_output` shows what tasks
                print and keeps Ray's own reports.
3. `trainer`    configures Ray Train, whose controller runs in the driver if the Ray is our own; `driver_monitor` forwards interrupts
                and explains failures; `training_progress` prints progress and results; `preemption` has workers save before a
                machine goes, and `diagnostics` files their profiles, and what hung ones waited for.
4. `assignment` is what the driver gives to every worker, and what Ray Train calls there. `worker` builds what the loop of `train` needs,
                and runs it. `reports` are the loop's callbacks, to Ray, MLflow and the driver; `worker_failures` tells the driver
                which workers have died.
5. `verify`     is the driver that trains a finished run again; on its workers, `replay` compares every step with the digest log.

`spark_baseline` fits models of Spark ML, those of `baseline_models`, to the same rows, to compare with.
"""
