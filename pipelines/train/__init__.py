"""Fits a task's model to a dataset version, on any number of workers, through kills and restarts.

1. `run`         the driver: checks the numbers, opens the MLflow run, has it trained, files the model.
   `cluster`     joins or starts Ray, `trainer` gives it the work; `watch` passes interrupts on and words failures;
                 `progress` is what a person sees.
2. `worker`      what Ray Train calls on every worker; `reports` are its ways to Ray, MLflow and the driver.
   `folder`      of the run, on storage that the driver and the workers see; in it `pulse` says where each worker is.
3. `loop`        epochs of steps, validation, early stopping, checkpoints. Knows nothing of Ray; torchrun can run it.
   `state`       is where it is; `hooks` are whom it tells; `ledger` is what its steps summed up to, `finite` whether that
                 is a number; `evaluate` gives a split's metrics.
4. `strategy`    how gradients meet: `ddp`, with `batch_norm`, or `exact`; what follows is `update`.
   `exact`       takes a pass per shard; `buckets` bring gradients, as passes give them, into the `tree`; `deterministic`
                 refuses what cannot be exact.
   `buffers`     are the model's, such as batch norm's statistics: how they come to one value.
   `meeting`     sums over the workers, by an `exchange` that is sent, or in memory that one machine's workers share.
   `optimize`    optimizers, and the learning rate as a pure function of the step; `precision`; `place` among the workers.
5. `checkpoint`  the state on storage, whole or not at all; `saver` says when, `store` how torch reaches it.
   `record`      is what a checkpoint holds beside tensors.
6. `verify`      the driver that has a run trained again, whose `witness` compares it with the `trail` that the run left.
"""
