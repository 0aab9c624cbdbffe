"""An interrupt of a kernel of Jupyter, which reaches all processes that it has started, leaves the kernel, its Ray and its Spark usable."""

from pathlib import Path

import pytest
from test_interrupted_notebook import CELLS

SETUP, FIT, VERSIONS = CELLS[:3]
GOES_ON = "print('goes on:', ray.get(ray.put(11)), spark.range(7).count())"


@pytest.mark.full
def test_p8_an_interrupted_kernel_goes_on_with_its_ray_and_spark(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    from jupyter_kernels import kernel_in

    with kernel_in(tmp_path) as kernel:
        kernel.run(SETUP)
        assert "KeyboardInterrupt" in kernel.run(FIT, "ETL makes a version")
        assert "versions: []" in kernel.run(VERSIONS), "the interrupted ETL has left nothing"
        training = kernel.run(FIT, "epoch ")
        assert "KeyboardInterrupt" in training and "stopped and saved after step" in training
        assert "goes on: 11 7" in kernel.run(GOES_ON)
        assert "KeyboardInterrupt" in kernel.run("import time\nprint('asleep', flush=True)\ntime.sleep(60)", "asleep")
        assert "goes on: 11 7" in kernel.run(GOES_ON)
