"""Parallel training strategies: everything in a training step that depends on parallelism. Independent of storage and tracking.

1. `strategies`  creates the strategy that a config names, from the table in `config.strategies`, with its initial model.
   `strategy`    is the interface; `step` defines the flags and the result of a step.
2. `mesh`        maps workers to rows.
3. `ddp`         runs one pass over a worker's rows, with their `counted_loss`; `batch_norm` normalises over the rows of all workers.
                 `compression` sends its gradients in fewer bytes, as factors of `low_rank` or as the entries in `top_k`, from a
                 `flat` tensor.
   `exact`       runs one pass per shard; `gradient_reducer` sums gradients in the tree of `collectives` during the passes;
                 `deterministic` rejects layers and kernels that are not; `passes` runs a shard's forward passes.
   `local_sgd`   has replicas that take steps of their own: `replica` is one of them, `point` its weights. `outer` brings them
                 together by their mean changes, from `replica_means` or, in fewer bytes, `int8_means`.
   `sharded`     spreads the model over the workers, with `parameter_shards`, by the `degrees` of the config: a `skeleton` of it gets its
                 initial values part by part, and blocks `recompute` their activations. `tensor` divides layers,
                 and `tokens` the tokens of rows.
   `pipelined`   is `sharded` with a `pipeline`: it divides rows into `microbatches` and the model into `stages`, which torch's schedules
                 connect in training, and a `relay` in predictions.
   `step_clock` measures where the time of a step goes.
   `buffers`     keeps the model's buffers, such as batch norm's statistics, equal on all workers.
   `randomness`  seeds torch by step and shard; `precision` sets the dtype of the forward pass.
4. `update`      divides and clips gradients and steps the `optimizer`, for all.
5. `inference`   predicts and samples, for all.
"""
