"""Kinds of target.

1. `base`     gives outputs, loss, metrics and predictions for a kind of target, and has the kind for numbers; `classes` those with classes.
             `decision` calibrates two classes and chooses their threshold, after a training.
2. `counts`, `quantiles` and `ordinal` are further kinds of one target; `several` are labels or numbers at once.
3. `kinds`    chooses one for the column of a dataset.
"""
