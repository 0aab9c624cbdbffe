"""Runs a training on the workers of a Ray cluster, and handles failures, restarts and interrupts. It hears, and never computes.

1. `training_run`   is the driver: opens the MLflow run, trains, logs the model; `checks` is what it refuses before, which ETL also says.
   `cross_validation` trains the model of each fold.
   `initial_weights` fetches the weights to start from, of another run or of files, if the config names some.
2. `cluster`        joins or starts a Ray cluster, shows what its tasks print, and keeps Ray's own reports. `own_ray` starts one on this
                    machine, whose files are private, with processes that wait for the workers: `preload` imports what they need.
3. `ray_trainer`    configures Ray Train, which restarts the workers from the last checkpoint after one has died, and whose controller runs
                    in the driver if the Ray is our own; `worker_failures` tells which have died.
   `training_watch` forwards interrupts, goes on without machines that are slow or taken away, explains what ended the training.
                    `layout_watch` compares steps with a `layout_plan`, and has the run go on in a better layout.
                    `training_progress` prints progress and results.
4. `assignment`     is what the driver gives to every worker, and what Ray Train calls there. `worker` builds what the loop of `train`
                    needs, and runs it. `reports` are the loop's callbacks, to Ray, MLflow, Prometheus and the driver.
5. `verify`         is the driver that trains a finished run again; its workers compare every step with the digest log.

`spark_baseline` fits models of Spark ML to the same rows, to compare with.
"""
