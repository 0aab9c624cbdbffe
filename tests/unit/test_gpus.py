"""Whether workers use GPUs, by those of the Ray cluster."""

from unittest.mock import patch

import pytest

from pipelines.config.train.train import Train
from pipelines.launch.cluster import uses_gpus


@pytest.mark.parametrize(
    ("gpus", "workers", "use_gpu", "expected", "warning"),
    [
        (0, 2, "auto", False, ""),
        (1, 2, "auto", False, "has 1 GPU for 2 workers, which need one each; to use GPUs, set train.workers to 1"),
        (1, 1, "auto", True, ""),
        (2, 2, True, True, ""),
        (1, 2, False, False, ""),
    ],
)
def test_each_worker_needs_a_gpu(
    gpus: int, workers: int, use_gpu: object, expected: bool, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with patch("ray.cluster_resources", lambda: {"CPU": 8.0, "GPU": float(gpus)}):
        is_used = uses_gpus(Train.model_validate({"workers": workers, "use_gpu": use_gpu}))
    assert is_used is expected
    assert warning in caplog.text and bool(caplog.text) == bool(warning)
