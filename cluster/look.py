"""Prints where every worker of a live training is: stack, step, phase, seconds per step.

    python cluster/look.py RUN_ID | JOB | FOLDER

RUN_ID is that of the MLflow run, JOB the name under which Ray took the job, and FOLDER the run's directory, which needs no MLflow.
MLFLOW_TRACKING_URI names the MLflow server, by default the file mlflow.db of LOCKSTEP_HOME. Workers on other machines are looked at
by tasks on their Ray nodes: set RAY_ADDRESS.
"""

import os
import sys

from pipelines.command_line import exit_on_error
from pipelines.config import home
from pipelines.errors import ConfigError


def main() -> None:
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        raise ConfigError("one argument is needed: a run's id, a job's name, or the folder of a run")
    # After the arguments have been read: these import torch and MLflow, which takes seconds.
    from pipelines.monitor.stack_dump import describe_workers  # noqa: PLC0415
    from pipelines.tracking import find_run_folder  # noqa: PLC0415
    from pipelines.train.checkpoint.run_directory import RunDirectory  # noqa: PLC0415

    named = sys.argv[1]
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home()}/mlflow.db"
    folder = named if "/" in named or os.path.isdir(named) else find_run_folder(uri, named)
    for line in describe_workers(RunDirectory(folder)):
        print(line, flush=True)


if __name__ == "__main__":
    exit_on_error(main)
