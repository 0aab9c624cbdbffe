"""Details of an evaluation besides metrics, for figures and tables: counts, samples, and the rows that are most wrong.

They come from the predictions that metrics are computed from. Each shard collects its own, and all are merged in the order of shards, so
that they do not depend on the number of workers. Their size does not depend on the number of rows.

1. `parts`      are sums, and rows selected by a key: mergeable, picklable, bounded. `slices` are sums for each value of the columns
                that `task.slices` names. `scores` are all scores, up to some millions.
2. `base`       is the base class, with readable values of a row, and the result: tables of plain columns.
3. `classes`    is for targets with classes, `numbers` for quantities. Those of an application stand in its folder.
4. `explanation` is what a model's outputs come from, and those of the most wrong rows.
"""

from pipelines.tasks.details.base import Details, EvaluationData, Explanation
from pipelines.tasks.details.parts import Part
from pipelines.tasks.details.supervised import ClassDetails, QuantityDetails

__all__ = ["ClassDetails", "Details", "EvaluationData", "Explanation", "Part", "QuantityDetails"]
