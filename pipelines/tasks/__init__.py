"""Tasks: a model, its loss and its metrics, in plain torch. Nothing here depends on workers.

1. `base`        defines the base class of tasks, and what a task knows about its dataset; `tensor_parallel_plan` says how
                 workers divide a layer, `tokens` which of a row's tokens a worker computes.
2. `targets`     gives outputs, loss, metrics and predictions for each kind of target: binary, classes or quantity.
3. `supervised`  is the base class of tasks with such a target, for any network, with class weights.
4. `tabular`     is a perceptron over numbers and indices, or an `ensemble` of several that share weights; `vision` a small network or a
                 `resnet` over images, `text` and `speech` convolutions over words and spectrograms, and `recommendation` matrix
                 factorization or DLRM.
5. `next_item`   is self-attention over sequences, `language` a `gpt` over windows of tokens, and `forecasting` a DLinear over the
                 history of series. These three have their own outputs and metrics.
6. `stages`      cuts a model into parts that different workers compute.
7. `row_random`  makes random numbers for each row, for augmentations and negative samples.
8. `trivial`     are predictors that a model must beat, such as class shares, which each task names; `details` are what an evaluation
                 keeps for figures beside metrics: counts, samples, the most wrong rows.
9. `means`       are averages over rows that declare whether higher is better; `moments` computes and combines means and variances;
                 `values` are what metrics give: a number, or why there is none; `directions` says in which direction each is better.

`bind` binds a task to the columns of a dataset version.
`pipelines.config.task` defines their settings, and how a config names tasks of one's own.
"""

from pipelines.runtime.compat import torchmetrics  # noqa: F401  before a task imports it in full
