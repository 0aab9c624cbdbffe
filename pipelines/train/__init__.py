"""Fits a task's model to a dataset version, on any number of workers, through kills and restarts.

1. `run`         the driver: checks the numbers, opens the MLflow run, starts the workers, ends the run truthfully.
2. `worker`      what Ray Train calls on every worker: where it computes, whom it reports to.
3. `loop`        epochs of steps, validation, early stopping, checkpoints. Knows nothing of Ray; torchrun can run it.
4. `strategy`    how gradients meet: `ddp`, with `batch_norm` over all workers' rows, or `exact`, with its `tree`; `update` follows.
5. `optimize`    optimizers, and the learning rate as a pure function of the step.
6. `ledger`      what each step summed up to, and the metrics that come of it.
7. `evaluate`    a split's metrics, every row exactly once.
8. `checkpoint`  the state on storage, whole or not at all.
9. `weights`     a model's weights as safetensors, and their digest.
10. `folder`     the run's folder: how the driver and the workers tell each other what they must know.
11. `progress`   what the driver prints meanwhile.
"""
