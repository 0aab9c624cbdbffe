"""What is learned: a model, a loss that adds up, and metrics. Torch alone, without a word about workers.

1. `base`        what a task is, and what it may know of its dataset.
2. `targets`     binary, classes or quantity: outputs, loss, metrics and predictions of each.
3. `supervised`  the task over such a target, whatever the network; class weights.
4. `tabular`     a perceptron over numbers and indices; `vision` a small network or a `resnet` over one image; `text` and
                 `speech` convolutions over words and spectrograms; `recommendation` users' and items' vectors.
5. `next_item`   what follows in a sequence; `language` a `gpt` over windows of tokens; `forecasting` a DLinear over the
                 history of series. They have outputs and metrics of their own.
6. `draws`       what a task draws for each row: augmentations, negatives.
7. `means`       averages over rows that say which way is better; `moments` are counts, means and squares of parts and the whole.

`pipelines.config.task` has their settings and says how one's own are named.
"""
