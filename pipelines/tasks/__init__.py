"""Tasks: a model, its loss and its metrics, in plain torch. Nothing here depends on workers.

1. `base`        defines the base class of tasks; `data` are its rows, and the facts that it knows about its dataset.
                 `tensor_parallel_plan` says how workers divide a layer, `tokens` which of a row's tokens a worker computes.
2. `targets`     gives outputs, loss, metrics and predictions for a kind of target, and `class_targets` for those with classes. `counts`,
                 `quantiles`, `ordinal` and `several` (labels or numbers) are further kinds; `target_kinds` chooses one.
3. `supervised`  is the base class of tasks with such a target, for any network, with weights of classes and rows.
4. `tabular`     is a perceptron over numbers, perhaps with a `number_embedding`, and indices, or an `ensemble` of several that share
                 weights; `trees` is a `forest` of decision trees over the same; `vision` a small network or a `resnet` over images,
                 which `picture_changes` shifts, mirrors and masks in training; `text`, `speech` and `series` convolutions over words,
                 spectrograms and series, a text also a `bag` of terms, and `recommendation` matrix factorization or DLRM.
                 `network_function` has the network that a function of the user's makes.
5. `next_item`   is self-attention over sequences, `language` a `gpt` over windows of tokens, and `forecasting` one of the
                 `forecast_networks` over the history of series. `segmentation` is a `unet` over images or volumes, of which it is trained
                 on `patches`, with `mask_metrics` and the predictors of `trivial_masks`. `operator` is a `fourier_operator` over functions
                 on a grid, with the predictors of `trivial_fields`. `detection` is a `pyramid` over images,
                 trained on `views` of them; `box_targets` has its loss, `box_peaks` makes boxes of its output, `box_metrics` measures them,
                 and `trivial_boxes` predicts without it. These six have their own outputs and metrics.
6. `stages`      cuts a model into parts that different workers compute.
7. `constants`   are copied to each device once; `row_random` makes random numbers for each row, for augmentations and negative samples.
8. `metrics`     is the table of metrics and their directions, `metric_classes` accumulates them, `further_metrics` those that a
                 config asks for; `moments` computes and combines means and variances; `values` are the results of metrics: a number, or
                 the reason why there is none.
9. `trivial`     are predictors that a model must beat, such as class shares, which each task names, and `trivial_forecasts` those of
                 series; `details` collects figures of an evaluation besides metrics: counts, samples, the most wrong rows.

`bind` binds a task to the columns of a dataset version.
`pipelines.config.task` defines their settings, and how a config names tasks of one's own.
"""

from pipelines.runtime.compat import torchmetrics  # noqa: F401  before a task imports it in full
