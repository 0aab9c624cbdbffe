"""An interrupt of a notebook's cell ends the cell alone: the kernel, its Ray and its Spark go on, and the same call resumes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

ROOT = Path(__file__).parents[2]
CELLS = (
    """
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import ray
from pipelines import api
from pipelines.etl import run as etl
from pyspark.sql import SparkSession

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
draw = np.random.default_rng(0)
age, plan = draw.integers(18, 80, 600), draw.choice(["basic", "plus", "pro"], 600)
frame = pd.DataFrame({"age": age, "plan": plan, "left": (age > 50) ^ (plan == "basic")})
handler = signal.getsignal(signal.SIGINT)  # that of PySpark
make = etl.make

def make_later(*arguments):
    etl.make = make
    print("ETL makes a version", flush=True)
    spark.range(10**12).selectExpr("sum(sqrt(id))").collect()

etl.make = make_later  # the first time, until it is interrupted
settings = {"train.epochs": 5000, "train.workers": 1, "train.checkpoint.every_steps": 20}
""",
    "run = api.fit(frame, target='left', name='churn', overrides=settings)",
    "print('versions:', [path.name for path in Path('data/churn').glob('*/manifest.json')])",
    "run = api.fit(frame, target='left', name='churn', overrides=settings)",
    "print('goes on:', ray.is_initialized(), spark.range(7).count(), signal.getsignal(signal.SIGINT) is handler)",
    "import time\ntime.sleep(60)",
    "ray.get(ray.put(11))",
)


@pytest.mark.full
def test_p8_an_interrupted_cell_leaves_kernel_ray_and_spark_usable(tmp_path: Path) -> None:
    notebook = tmp_path / "x.ipynb"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in CELLS]}))
    output = tmp_path / "output"
    environment = {**os.environ, "LOCKSTEP_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(ROOT / "tests/notebook_cells.py"), str(notebook), "goes on"]
    with output.open("w") as file:
        kernel = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        for awaited in ("ETL makes a version", "epoch ", "cell 5"):
            wait_until(lambda awaited=awaited: awaited in output.read_text(), awaited, 240, say=output.read_text)
            kernel.send_signal(signal.SIGINT)
        assert kernel.wait(120) == 0, output.read_text()
    finally:
        kernel.kill()
    printed = output.read_text()
    assert printed.count("KeyboardInterrupt") == 3 and "Traceback" not in printed, printed
    assert "versions: []" in printed, "the interrupted ETL has left nothing"
    assert "stopped and saved after step" in printed and "goes on: True 7 True" in printed and printed.rstrip().endswith("11"), printed
