"""MLflow runs of ETL, training and baselines. Only this package and `serve` call MLflow.

1. `client`     reaches the tracking server or file, and words what it answers.
2. `liveness`   heartbeats: which runs are at work, and which a kill left RUNNING.
3. `sender`     sends curves from rank 0 in batches, each point once, through outages and restarts.
4. `run`        a run while it is under way, and how it ends.
5. `training`   opens or continues the run of a training.
6. `etl`        the run of an ETL; `git` says which commit of the code made a run.
7. `baseline`   the run of a baseline.
8. `system`     each node's own figures.
9. `recorded`   what MLflow has of a training that is over; `models` are those that were filed.
"""

from pipelines.tracking.baseline import baseline_run
from pipelines.tracking.client import check_host
from pipelines.tracking.etl import SPARK_APPLICATION, etl_run
from pipelines.tracking.liveness import MODEL_DIGEST
from pipelines.tracking.models import newest_model
from pipelines.tracking.run import answers, under_way
from pipelines.tracking.sender import Sender
from pipelines.tracking.system import system_metrics
from pipelines.tracking.training import TrainingRun, open_training, unfinished_folder, weights_of

__all__ = [
    "MODEL_DIGEST",
    "SPARK_APPLICATION",
    "Sender",
    "TrainingRun",
    "answers",
    "baseline_run",
    "check_host",
    "etl_run",
    "newest_model",
    "open_training",
    "system_metrics",
    "under_way",
    "unfinished_folder",
    "weights_of",
]
