"""MLflow runs of ETL, training and baselines. Only this package, `serve` and `registry` call MLflow.

1. `client`     connects to the tracking server or file, and turns its errors into TrackingErrors.
2. `liveness`   sends heartbeats, which show the next command whether a run is alive or was killed.
3. `sender`     sends metrics from rank 0 in batches, each point once, across outages and restarts.
4. `run`        keeps a run alive while it is under way, and sets its final status.
5. `training`   opens or continues the run of a training.
6. `etl`        is the run of an ETL; `git` finds the commit of the code.
7. `baseline`   is the run of a baseline.
8. `system`     logs system metrics of each node, `power` that of its processors.
9. `recorded`   reads a finished training from MLflow, `history` a run's curves, tags and files; `models` finds logged models, and
                `registered` those of the registry; `exports` logs what was made of the model of a run.
"""

from pipelines.tracking.baseline import baseline_run
from pipelines.tracking.client import check_host
from pipelines.tracking.etl import SPARK_APPLICATION, etl_run
from pipelines.tracking.liveness import MODEL_DIGEST
from pipelines.tracking.models import newest_model
from pipelines.tracking.run import answers, under_way
from pipelines.tracking.sender import Sender
from pipelines.tracking.system import system_metrics
from pipelines.tracking.training import REMARKS, UNDEFINED, TrainingRun, folder_of_run, open_training, unfinished_folder, weights_of

__all__ = [
    "MODEL_DIGEST",
    "REMARKS",
    "SPARK_APPLICATION",
    "UNDEFINED",
    "Sender",
    "TrainingRun",
    "answers",
    "baseline_run",
    "check_host",
    "etl_run",
    "folder_of_run",
    "newest_model",
    "open_training",
    "system_metrics",
    "under_way",
    "unfinished_folder",
    "weights_of",
]
