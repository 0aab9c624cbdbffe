"""Kinds of target.

1. `base`          gives outputs, loss, metrics and predictions for a kind of target, and has the kind for numbers; `classes` those with
                  classes. `decision` calibrates two classes and chooses their threshold, after a training.
2. `distributions` are counts and quantiles; `labels_and_vectors` are labels or numbers at once.

`pipelines.tasks.supervised` chooses one for the column of a dataset.
"""
