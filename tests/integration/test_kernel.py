"""An interrupt of a kernel of Jupyter, which reaches all processes that it has started, leaves the kernel, its Ray and its Spark usable."""

from pathlib import Path

import pytest

SETUP = """
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
make = etl.make

def make_later(*arguments):
    etl.make = make
    print("ETL makes a version", flush=True)
    spark.range(10**12).selectExpr("sum(sqrt(id))").collect()

etl.make = make_later  # the first time, until it is interrupted
settings = {"train.epochs": 5000, "train.workers": 1, "train.checkpoint.every_steps": 20}
"""
FIT = "run = api.fit(frame, target='left', name='churn', overrides=settings)"
VERSIONS = "print('versions:', [path.name for path in Path('data/churn').glob('*/manifest.json')])"
GOES_ON = "print('goes on:', ray.get(ray.put(11)), spark.range(7).count())"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_p8_an_interrupted_kernel_goes_on_with_its_ray_and_spark(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    from kernels import kernel_in

    with kernel_in(tmp_path) as kernel:
        kernel.run(SETUP)
        assert "KeyboardInterrupt" in kernel.run(FIT, "ETL makes a version")
        assert "versions: []" in kernel.run(VERSIONS), "the interrupted ETL has left nothing"
        training = kernel.run(FIT, "epoch ")
        assert "KeyboardInterrupt" in training and "stopped and saved after step" in training
        assert "goes on: 11 7" in kernel.run(GOES_ON)
        assert "KeyboardInterrupt" in kernel.run("import time\nprint('asleep', flush=True)\ntime.sleep(60)", "asleep")
        assert "goes on: 11 7" in kernel.run(GOES_ON)
