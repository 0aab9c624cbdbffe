"""Details of an evaluation besides metrics, for figures and tables: counts, samples, and the rows that are most wrong.

They come from the predictions that metrics are computed from. Each shard collects its own, and all are merged in the order of shards, so
that they do not depend on the number of workers. Their size does not depend on the number of rows.

1. `parts`      are sums, and rows selected by a key: mergeable, picklable, bounded. `scores` are all scores, up to some millions.
2. `base`       is the base class, and the result: tables of plain columns.
3. `slices`     are sums for each value of the columns that `task.slices` names; `eval_samples` are readable values of a row.
4. `classes`    is for targets with classes, `quantity` for numbers, `forecasts` for series, `ranking` for next items, and
                `windows` for language models.
"""

from pipelines.tasks.details.base import Details, EvaluationData
from pipelines.tasks.details.classes import ClassDetails
from pipelines.tasks.details.forecasts import ForecastDetails
from pipelines.tasks.details.parts import Part
from pipelines.tasks.details.quantity import QuantityDetails
from pipelines.tasks.details.ranking import RankingDetails
from pipelines.tasks.details.windows import WindowDetails

__all__ = ["ClassDetails", "Details", "EvaluationData", "ForecastDetails", "Part", "QuantityDetails", "RankingDetails", "WindowDetails"]
