"""MLflow runs of ETL, training and baselines. Only this package, `serve` and `registry` call MLflow.

1. `client`     connects to the tracking server or file, and turns its errors into TrackingErrors.
2. `naming`     has the names that people meet there, and hides those of machinery; `description` sums a run up in five lines.
3. `liveness`   sends heartbeats, which show the next command whether a run is alive or was killed.
4. `sender`     sends metrics from rank 0 in batches, each point once, across outages and restarts.
5. `run`        keeps a run alive while it is under way, and sets its final status.
6. `training`   opens or continues the run of a training.
7. `etl`        is the run of an ETL; `git` finds the commit of the code.
8. `baseline`   is the run of a baseline.
9. `system`     logs system metrics of each node, `power` that of its processors.
10. `recorded`  reads a finished training from MLflow, `history` a run's curves, tags and files; `models` finds logged models, and
                `registered` those of the registry; `exports` logs what was made of the model of a run.
"""

from pipelines.tracking.baseline import baseline_run
from pipelines.tracking.client import check_host
from pipelines.tracking.description import describe_etl, describe_training
from pipelines.tracking.etl import SPARK_APPLICATION, etl_run
from pipelines.tracking.liveness import MODEL_DIGEST
from pipelines.tracking.models import newest_model
from pipelines.tracking.naming import browse_line
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
    "browse_line",
    "check_host",
    "describe_etl",
    "describe_training",
    "etl_run",
    "folder_of_run",
    "newest_model",
    "open_training",
    "system_metrics",
    "under_way",
    "unfinished_folder",
    "weights_of",
]
