"""A night as a DAG of Airflow 3: ETL of the rows that came, training, promotion, prediction. docs/how-to/unattended.md says what each exit
code means.

LOCKSTEP_CHECKOUT is the folder of jobs/, LOCKSTEP_PYTHON the interpreter of its environment, and LOCKSTEP_PIPELINE the name of a pipeline
whose config is conf/NAME.yaml there. LOCKSTEP_SETTINGS are further settings, such as `--train.workers 4`. Airflow needs an environment of
its own, in which nothing of Lockstep is installed.
"""

import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

CHECKOUT = os.environ.get("LOCKSTEP_CHECKOUT", os.getcwd())
PYTHON = os.environ.get("LOCKSTEP_PYTHON", f"{CHECKOUT}/.venv/bin/python")
NAME, SETTINGS = os.environ.get("LOCKSTEP_PIPELINE", "digits"), os.environ.get("LOCKSTEP_SETTINGS", "")
RUN_ID = r"""sed -n 's/.*"event": "result".*"run_id": "\([^"]*\)".*/\1/p'"""
REFUSED = 8


def job(name: str, arguments: str, pipe: str = "", **options: object) -> BashOperator:
    """A task that runs jobs/NAME.py, and fails with it. `pipe` is a shell command that reads what it prints."""
    command = f"set -o pipefail; {PYTHON} jobs/{name}.py conf/{NAME}.yaml {arguments} --json {SETTINGS}"
    return BashOperator(task_id=name, bash_command=f"{command}{f' | {pipe}' if pipe else ''}", cwd=CHECKOUT, append_env=True, **options)


with DAG(
    dag_id=f"night_of_{NAME}",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # a second night waits
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},  # the same command again is right after any failure
):
    etl = job("etl", "--from previous")
    train = job("train", "--once", RUN_ID)  # its last line, the ID of the run, is what Airflow hands on
    promote = job("promote", '--run {{ ti.xcom_pull(task_ids="train") }}', skip_on_exit_code=REFUSED)
    # A refused model leaves the champion, which predicts as before.
    predict = job("predict", f"--model models:/{NAME}@champion --output data/predictions/{NAME}", trigger_rule="none_failed")
    etl >> train >> promote >> predict
