"""Writes an archive of the classes that Java loads for an ETL. Java then needs half of the processor time to start and run a small one.

This is class data sharing (https://openjdk.org/jeps/350). Java ignores the archive, without a word, if its own version, Spark's jars or
the folder of Spark's settings are others than those of the ETL that wrote it. `pipelines.spark.java_options` uses it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml

from pipelines.spark.java_options import QUIET, SHORT_JOB_OPTIONS, archive_path

SECONDS = 300.0
ROWS = 300
CONFIG = {
    "name": "classes",
    "source": {
        "tables": {
            "people": {"format": "csv", "path": "people.csv", "schema": "id int, age double, work string, rich string"},
            "towns": {"format": "csv", "path": "towns.csv", "schema": "id int, town string"},
        },
        "query": "SELECT p.*, t.town, rich = 'yes' AS target FROM people p JOIN towns t USING (id)",
        "expect": {"plausible age": "age BETWEEN 0 AND 120"},
    },
    "dataset": {
        "path": "data",
        "key": ["id"],
        "split": {"train": 0.8, "validation": 0.1, "test": 0.1},
        "features": {"age": "standardize", "work": "vocabulary", "town": "vocabulary"},
        "target": {"target": "binary"},
    },
    "task": {"kind": "tabular"},
    "train": {"global_batch": 8, "shards": 1},
    "tracking": {"uri": "sqlite:///mlflow.db"},
}


def main() -> None:
    archive = archive_path()
    with tempfile.TemporaryDirectory() as folder:
        if not run_etl(Path(folder), Path(folder, "classes.jsa")):
            sys.exit("no archive of Java's classes was written: Spark works without it, and starts more slowly")
        new = archive.with_suffix(f".{os.getpid()}")
        shutil.copyfile(Path(folder, "classes.jsa"), new)  # the folder may be on another disk
        new.replace(archive)


def run_etl(folder: Path, archive: Path) -> bool:
    """Run a small ETL in a folder, wait until its Java has ended, and return whether that wrote the archive."""
    people = [f"{row},{20 + row % 60},{('baker', 'smith', 'clerk')[row % 3]},{('yes', 'no')[row % 2]}" for row in range(ROWS)]
    (folder / "people.csv").write_text("\n".join(["id,age,work,rich", *people, "x,1,2,3,4,5"]), encoding="utf-8")
    (folder / "towns.csv").write_text("\n".join(["id,town", *(f"{row},town {row % 7}" for row in range(ROWS))]), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    variables = {
        "LOCKSTEP_HOME": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": " ".join([*SHORT_JOB_OPTIONS, f"-XX:ArchiveClassesAtExit={archive}", QUIET]),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")} | variables
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "jobs/etl.py"), str(folder / "config.yaml")]
    try:
        job = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    deadline = time.monotonic() + SECONDS
    while any(str(archive) in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return job.returncode == 0 and archive.exists()


if __name__ == "__main__":
    main()
