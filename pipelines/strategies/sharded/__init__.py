"""Strategy `sharded`: a model that is spread over workers, by the degrees of its `settings`.

1. `sharded`             spreads parameters, gradients and optimizer state, by `parameter_shards`: a skeleton of the model gets its initial
                         values part by part, and blocks compute their activations again.
2. `tensor_and_context`  divides layers, and the tokens of rows; and arranges the workers as torch's device mesh.
3. `pipelined`           is `sharded` with a pipeline: it divides rows into microbatches and the model into `stages`, which torch's
                         schedules connect in training, and which pass tensors on in predictions.
"""
