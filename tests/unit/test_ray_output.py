"""Of what Ray's processes print, people see what tasks print; the rest is kept."""

import logging
from pathlib import Path
from typing import Any

import pytest
from ray._private import worker

from pipelines.launch import cluster
from pipelines.launch.cluster import RayOutput
from pipelines.runtime.compat.ray import filtered_output
from pipelines.train.checkpoint.run_directory import RunDirectory

TRACEBACK = [
    "Error in training function:",
    "Traceback (most recent call last):",
    '  File "loop.py", line 3, in step',
    "RuntimeError: reset",
]


def batch(*lines: str, pid: Any = 7, is_err: bool = True, actor: str = "RayTrainWorker") -> dict[str, Any]:
    return {"lines": list(lines), "pid": pid, "is_err": is_err, "actor_name": actor}


def test_reports_of_a_death_are_kept_and_the_output_of_tasks_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
    output = RayOutput()
    assert output.write(RunDirectory(str(tmp_path))) == "" and not list(tmp_path.iterdir())
    assert output.hide_reports(batch("loss 0.5", "step 3", is_err=False)) == ["loss 0.5", "step 3"]
    assert output.hide_reports(batch("a warning of the task's", *TRACEBACK)) == ["a warning of the task's"]
    assert output.hide_reports(batch("the rest of the report")) == []
    assert output.hide_reports(batch("of another worker", pid=8)) == ["of another worker"]
    assert output.hide_reports(batch("loss 0.4", is_err=False)) == ["loss 0.4"]
    assert output.hide_reports(batch("A worker died or was killed while executing a task", pid="raylet", is_err=False)) == []
    assert output.hide_reports(batch("[FailurePolicy] RETRY", pid=9, actor="TrainController")) == []
    assert output.hide_reports(batch("[rank0]:[E1125 ProcessGroupNCCL.cpp:616] watchdog", "*** SIGABRT received at time=17", pid=10)) == []
    now[0] = 60.0
    assert output.hide_reports(batch("a later warning")) == ["a later warning"]
    line = output.write(RunDirectory(str(tmp_path)))
    assert line == f"what Ray and torch printed about it is in {tmp_path}/ray.log"
    hidden_text = (tmp_path / "ray.log").read_text().splitlines()
    assert hidden_text[1] == "(RayTrainWorker pid=7) Traceback (most recent call last):" and len(hidden_text) == 9


def test_ray_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with filtered_output(RayOutput().hide_reports):
        worker.print_to_stdstream(batch("loss 0.5", is_err=False), ignore_prefix=True)
        worker.print_to_stdstream(batch(*TRACEBACK), ignore_prefix=True)
    assert capsys.readouterr() == ("loss 0.5\n", "")
    worker.print_to_stdstream(batch(*TRACEBACK), ignore_prefix=True)
    assert "RuntimeError: reset" in capsys.readouterr().err


def test_a_controller_in_this_process_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, logger = RayOutput(), logging.getLogger("ray.train.v2.controller")
    with output.kept_log():
        logger.warning("[FailurePolicy] RETRY")
        logger.info("of no interest")
    assert capsys.readouterr() == ("", "")
    output.write(RunDirectory(str(tmp_path)))
    lines = (tmp_path / "ray.log").read_text().splitlines()
    assert len(lines) == 1 and lines[0].endswith("[FailurePolicy] RETRY")
    assert logging.getLogger("ray.train").propagate
