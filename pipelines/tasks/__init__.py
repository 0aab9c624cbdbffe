"""Tasks: a model, its loss and its metrics, in plain torch. Nothing here depends on workers.

1. `base`        defines the base class of tasks; `data` are its rows, and the facts that it knows about its dataset.
2. `targets`     give outputs, loss, metrics and predictions for each kind of target: a number, a count, a class, several of them.
   `answers`     are the predictions from outputs, which need no torch.
3. `supervised`  is the base class of tasks with such a target, for any network, with weights of classes and rows.
4. `tabular`, `text` and `vision` are networks for rows, words and images; further ones are in `pipelines.applications`.
   `network_function` has the network that a function of the user's makes; `augmentation` changes rows at random in training.
5. `metrics`     are the table of metrics and their directions, and classes that accumulate them.
6. `trivial`     are predictors that a model must beat, such as class shares, which each task names.
7. `details`     collect figures of an evaluation besides metrics: counts, samples, the most wrong rows.
8. `model_parallel` says how workers divide a model: its layers, the tokens of a row, or its depth.
9. `linear_cross_entropy` is that of a head with many classes, in little memory; `logit_kernels` are its kernels for GPUs.

`bind` binds a task to the columns of a dataset version.
`pipelines.config.tasks.task` defines their settings, and how a config names tasks of one's own.
"""

from pipelines.runtime.compat import torchmetrics  # noqa: F401  before a task imports it in full
