"""A plain spark-submit, its Spark's settings where make puts them, prints what the job says and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from quiet_spark import install

from pipelines.runtime.compat.spark import jvm

ROOT = Path(__file__).parents[2]


def test_before_a_job_s_first_line_spark_says_nothing(tmp_path: Path) -> None:
    assert install().read_text() == (ROOT / "cluster/local/spark/log4j2.properties").read_text()
    environment = {key: value for key, value in os.environ.items() if key == "SPARK_SUBMIT_OPTS" or "SPARK_" not in key}
    environment |= {"LOCKSTEP_HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["spark-submit", "jobs/etl.py", "conf/digits.yaml", "--train.wrokers", "2"]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    lines = (process.stdout + process.stderr).splitlines()  # spark-submit gives out Python's errors as its own output
    assert process.returncode == 2 and "--train.wrokers: no such setting; did you mean workers? (got 2)" in lines
    assert [line for line in lines if " INFO " in line] == []


def test_what_the_driver_receives_as_an_exception_java_does_not_print_too(spark: SparkSession) -> None:
    """Of a task that a signal cancels, TaskContextImpl would print a stack: its broadcast is gone."""
    loggers = jvm().org.apache.logging.log4j.LogManager
    levels = {
        name: loggers.getLogger(f"org.apache.spark.{name}").getLevel().toString()
        for name in ("TaskContextImpl", "executor.Executor", "scheduler.TaskSchedulerImpl")
    }
    assert levels == {"TaskContextImpl": "OFF", "executor.Executor": "OFF", "scheduler.TaskSchedulerImpl": "ERROR"}
