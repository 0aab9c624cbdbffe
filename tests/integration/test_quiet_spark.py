"""A plain spark-submit, its Spark's settings where make puts them, starts soon, and prints what the job says and nothing else."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import quiet_spark
from pyspark.sql import SparkSession
from quiet_spark import install, install_options

from pipelines.runtime.compat.spark import jvm
from pipelines.spark.java_options import archive_path

ROOT = Path(__file__).parents[2]


def test_before_a_job_s_first_line_spark_says_nothing(tmp_path: Path) -> None:
    assert zipfile.ZipFile(install()).read("log4j2.properties") == (ROOT / "cluster/local/spark/log4j2.properties").read_bytes()
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
        for name in (
            "TaskContextImpl",
            "executor.Executor",
            "sql.catalyst.expressions.codegen.CodeGenerator",
            "scheduler.TaskSchedulerImpl",
        )
    }
    assert levels.pop("scheduler.TaskSchedulerImpl") == "ERROR" and {*levels.values()} == {"OFF"}


@pytest.mark.skipif(not archive_path().exists(), reason="make has not written an archive of Java's classes")
def test_java_loads_its_classes_from_the_archive(spark: SparkSession) -> None:
    """Java ignores an archive that does not fit without a word."""
    process = jvm().java.lang.ProcessHandle.current().pid()
    assert str(archive_path()) in Path(f"/proc/{process}/maps").read_text()


JAVA = """
import os
from pathlib import Path

java = Path("/proc", str(os.getppid()))
print(java.joinpath("cmdline").read_text().replace("\\0", " "))
print("lockstep-classes.jsa" in java.joinpath("maps").read_text())
"""


@pytest.mark.parametrize("options", ["", "-XX:+UseSerialGC"])
def test_java_starts_with_our_options_unless_there_are_others(options: str, tmp_path: Path) -> None:
    assert install_options() is not None
    (tmp_path / "look.py").write_text(JAVA)
    environment = {key: value for key, value in os.environ.items() if "SPARK_" not in key} | (
        {"SPARK_SUBMIT_OPTS": options} if options else {}
    )
    process = subprocess.run(
        ["spark-submit", str(tmp_path / "look.py")], env=environment, capture_output=True, text=True, timeout=280, check=True
    )
    command, is_archive_used = process.stdout.splitlines()[-2:]
    assert ("UseParallelGC" in command, "UseSerialGC" in command) == (not options, bool(options))
    assert is_archive_used == str(archive_path().exists() and not options)


def test_a_user_s_own_script_of_spark_s_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_spark, "spark_home", lambda: tmp_path)
    written = install_options()
    assert written is not None and written.read_text() == install_options().read_text()  # type: ignore[union-attr]  # as before
    written.write_text("SPARK_LOCAL_IP=10.0.0.7\n")
    assert install_options() is None and written.read_text() == "SPARK_LOCAL_IP=10.0.0.7\n"
    monkeypatch.setattr(quiet_spark, "spark_home", lambda: tmp_path / "with a space")
    assert install_options() is None
