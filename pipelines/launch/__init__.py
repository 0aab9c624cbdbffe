"""Runs a training on the workers of a Ray cluster, and handles failures, restarts and interrupts.

1. `run`        the driver: checks settings, opens the MLflow run, starts the training, logs the model.
   `init_from`  the weights to start from, where the config names another run's.
2. `cluster`    joins or starts Ray and sets workers' environment; `own_ray` is the one that it starts, and `private` says who
                may read its files.
3. `trainer`    configures Ray Train; `watch` forwards interrupts and explains failures; `progress` prints progress and results.
4. `worker`     what Ray Train calls on every worker: builds what the loop of `train` needs, and runs it.
   `reports`    are the loop's callbacks, to Ray, MLflow and the driver; `heartbeat` says where each worker is.
5. `verify`     the driver that has a finished run trained again; its workers' `replay` compares every step with the digest log.
"""
