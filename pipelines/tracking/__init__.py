"""MLflow runs of ETL, training and baselines. Only this package, `serving.model`, `serving.registry` and
`runtime.compat` import MLflow.

1. `client`     connects to the tracking server or file, and turns its errors into TrackingErrors.
2. `descriptions` has the names that people meet there, and hides those of machinery; and sums a run up in five lines, with the commit of
                the code.
3. `run_heartbeat` sends heartbeats, which show the next command whether a run is alive or was killed.
4. `sender`     sends metrics from rank 0 in batches, each point once, across outages and restarts.
5. `tracked_run` creates a run, keeps it alive, and sets its final status. `params_and_tags` has the settings and the origin that it shows.
6. `training`   opens or resumes the run of a training.
   `parent_run`    opens or resumes a run in which trainings are runs: `cross_validation_run` is that of folds. `search_run` does so for a
                search of settings, and reads what trainings have reached by epoch; `search_files` reads what it has filed.
7. `job_runs`   are the runs of an ETL and of a baseline.
8. `system`     logs system metrics of each node, and the power of its processors.
9. `history`    reads a finished training, and a run's curves, tags and files. `models` finds and downloads logged models and versions in
                the registry, and logs the exported model of a run. `dataset_readers` finds the models and runs that need versions of a
                dataset, and the trainings that have ended. `dataset_users` finds the runs on a dataset's rows with their models, and
                changes their artifacts.
"""

from pipelines.tracking.client import check_host, connect_early
from pipelines.tracking.descriptions import SPARK_APPLICATION, browse_line, describe_etl, describe_training
from pipelines.tracking.job_runs import baseline_run, etl_run
from pipelines.tracking.models import newest_model
from pipelines.tracking.run_heartbeat import MODEL_DIGEST
from pipelines.tracking.sender import Sender, final_point, final_step
from pipelines.tracking.system import system_metrics
from pipelines.tracking.tracked_run import Status, is_reachable, tracked_run
from pipelines.tracking.training import (
    IS_TRAINED,
    NON_FINITE,
    REMARKS,
    RESULT,
    UNDEFINED,
    TrainingRun,
    download_weights,
    find_finished_training,
    find_run_folder,
    open_training,
    resumable_folder,
)

__all__ = [
    "IS_TRAINED", "MODEL_DIGEST", "NON_FINITE", "REMARKS", "RESULT", "SPARK_APPLICATION", "UNDEFINED", "Sender", "Status", "TrainingRun",
    "baseline_run", "browse_line", "check_host", "connect_early", "describe_etl", "describe_training", "download_weights", "etl_run",
    "final_point", "final_step", "find_finished_training", "find_run_folder", "is_reachable", "newest_model", "open_training",
    "resumable_folder", "system_metrics", "tracked_run",
]  # fmt: skip
