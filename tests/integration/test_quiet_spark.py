"""A plain spark-submit, its Spark's settings where make puts them, prints what the job says and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

from quiet_spark import install

ROOT = Path(__file__).parents[2]


def test_before_a_job_s_first_line_spark_says_nothing(tmp_path: Path) -> None:
    assert install().read_text() == (ROOT / "cluster/local/spark/log4j2.properties").read_text()
    environment = {key: value for key, value in os.environ.items() if key == "SPARK_SUBMIT_OPTS" or "SPARK_" not in key}
    environment |= {"LOCKSTEP_HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["spark-submit", "jobs/etl.py", "conf/digits.yaml", "--train.wrokers", "2"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    said = (done.stdout + done.stderr).splitlines()  # spark-submit gives out Python's errors as its own output
    assert done.returncode == 2 and "--train.wrokers: no such setting; did you mean workers? (got 2)" in said
    assert [line for line in said if " INFO " in line] == []
