"""SIGINT and SIGTERM to real jobs, in each of their stages: the documented exit code and status, nothing lost, nothing left.

`make chaos ARGS="--cases stages signals"` sends each of them in each stage in every way, and at random moments.
"""

import signal
from pathlib import Path

import pytest
from chaos import stages


@pytest.mark.parametrize(
    ("stage", "way", "number"),
    [
        pytest.param("start", "to its group", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("Ray starts", "as timeout", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("workers start", "to its group", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("validation", "to every process", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("save", "as timeout", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("filing", "to the process", signal.SIGINT, marks=pytest.mark.full),
    ],
)
def test_p8_a_training_leaves_as_documented(tmp_path: Path, stage: str, way: str, number: int) -> None:
    job_exit, fault = stages.train(tmp_path, stage, way, number)
    assert fault == "", job_exit.printed


@pytest.mark.parametrize(
    ("stage", "way", "number", "under_submit"),
    [
        pytest.param("start", "to its group", signal.SIGINT, False, marks=pytest.mark.full),
        pytest.param("Spark starts", "to its group", signal.SIGTERM, False, marks=pytest.mark.full),
        pytest.param("checksums", "to the process", signal.SIGINT, True, marks=pytest.mark.full),
        pytest.param("read", "to its group", signal.SIGINT, True, marks=pytest.mark.full),
        pytest.param("fit", "to the process", signal.SIGTERM, True, marks=pytest.mark.full),
        pytest.param("write", "as timeout", signal.SIGTERM, False, marks=pytest.mark.full),
        ("commit", "to its group", signal.SIGINT, False),
        pytest.param("filing", "to the process", signal.SIGTERM, False, marks=pytest.mark.full),
    ],
)
def test_p8_etl_leaves_as_documented_and_removes_what_it_wrote(
    tmp_path: Path, stage: str, way: str, number: int, under_submit: bool
) -> None:
    job_exit, fault = stages.etl(tmp_path, stage, way, number, under_submit)
    assert fault == "", job_exit.printed
