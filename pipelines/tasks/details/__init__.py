"""Details of an evaluation besides metrics, for figures and tables: counts, samples, and the rows that are most wrong.

They come from the predictions that metrics are computed from. Each shard collects its own, and all are merged in the order of shards, so
that they do not depend on the number of workers. Their size does not depend on the number of rows.

1. `parts`       are sums, rows selected by a key, and all scores up to some millions: mergeable, picklable, bounded.
2. `base`        is the base class, with readable values of a row, sums for each value of the columns that `task.slices` names, what a
                 model's outputs come from, and the result: tables of plain columns.
3. `supervised`  has those of classes and of quantities. Those of an application stand in its folder.
"""

from pipelines.tasks.details.base import Details, EvaluationData, Explanation
from pipelines.tasks.details.parts import Part
from pipelines.tasks.details.supervised import ClassDetails, QuantityDetails

__all__ = ["ClassDetails", "Details", "EvaluationData", "Explanation", "Part", "QuantityDetails"]
