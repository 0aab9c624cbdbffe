"""Which steps are profiled, and what is said about a live worker and of a profile that never came."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from pipelines.config.train.base import Profile
from pipelines.errors import TrainingError
from pipelines.launch.training_run import _profile_lines
from pipelines.monitor.profile import StepProfiler
from pipelines.monitor.stack_dump import describe_worker, describe_workers, remote_stack, stack
from pipelines.monitor.worker_heartbeat import WorkerBeat, parse_beat
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.step_clock import StepClock


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": [60, 50]}, r"steps is \[60, 50\]; write the smaller number first"),
        ({"steps": [1, 2_000]}, r"steps is \[1, 2000\], 2,000 steps; record at most 1,000"),
        ({"steps": [0, 3]}, "greater than 0"),
        ({"steps": [1, 3], "ranks": [-1]}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_profiled_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile.model_validate(settings)


def test_a_profile_that_never_came_is_said() -> None:
    profile = Profile(steps=(50, 60), ranks=(0, 1, 1))
    assert _profile_lines(Profile(), []) == []
    assert _profile_lines(profile, ["rank-0.trace.json.gz", "rank-1.trace.json.gz"]) == [
        "the profile of steps 50 to 60 is filed under profile/; https://ui.perfetto.dev opens its traces"
    ]
    assert _profile_lines(profile, [])[-1] == (
        "train.profile: there is no profile of worker 0, 1, which did not exist or did not come to steps 50 to 60"
    )


def profiler(put: Any, rank: int = 0) -> StepProfiler:
    return StepProfiler(Profile(steps=(2, 3)), StepClock(), torch.device("cpu"), rank, put)


def test_the_last_step_s_profile_is_put_when_the_run_ends() -> None:
    files: dict[str, bytes] = {}
    first = profiler(files.__setitem__)
    for step in (1, 2, 3):
        first.begin(step)
        torch.ones(2) + step
    assert not files
    first.close()
    assert sorted(files) == ["rank-0.operators.json", "rank-0.operators.txt", "rank-0.trace.json.gz"]
    second = profiler(files.__setitem__, rank=1)
    second.begin(2)
    second.close()
    assert not any("rank-1" in name for name in files)


def test_a_profile_that_fails_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def put(name: str, content: bytes) -> None:
        raise TrainingError(f"{name}: the disk is full")

    step_profiler = profiler(put)
    for step in range(1, 7):
        step_profiler.begin(step)
    step_profiler.close()
    assert caplog.text.count("the disk is full") == 1


def test_a_profile_that_fails_while_it_records_records_no_longer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    clock = StepClock()
    step_profiler = StepProfiler(Profile(steps=(2, 3), memory=True), clock, torch.device("cpu"), 0, lambda name, content: None)
    monkeypatch.setattr("pipelines.monitor.profile.record_function", Mock(side_effect=RuntimeError("no range")))
    step_profiler.begin(2)
    assert "no range" in caplog.text and clock.observe is None
    with torch.profiler.profile():  # of which there can be only one
        step_profiler.begin(3)


@contextmanager
def another_process() -> Iterator[int]:
    code = "import time\ndef dawdle():\n    print('here', flush=True)\n    time.sleep(60)\ndawdle()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_stack_is_that_of_the_process_or_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_process() as process:
        assert "dawdle" in (text := stack(process)) or "py-spy may not read the process" in text, text
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert "set RAY_ADDRESS" in remote_stack(WorkerBeat(host="elsewhere"))
    assert "no stack" in stack(process)


def test_a_worker_is_described_by_its_heartbeat(tmp_path: Path) -> None:
    where = {"step": 41, "phase": "exchange", "phase_seconds": 2.5, "waits": True}
    beat = parse_beat({"time": 100.0, "host": "here", "process": 7, "steps": 4, "seconds": {"forward": 1.0}, **where})
    assert describe_worker(3, beat, now=101.0) == (
        "worker 3: process 7 on here, for 2.5 s in exchange of step 42, waiting for others\n  seconds per step: forward 0.25"
    )
    assert "silent for 60 s" in describe_worker(3, beat, now=160.0)
    with pytest.raises(TrainingError, match="no heartbeat of a worker; name a run that trains"):
        next(describe_workers(RunDirectory(str(tmp_path))))


def test_the_command_says_what_it_takes() -> None:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    answer = subprocess.run([sys.executable, "cluster/look.py"], capture_output=True, text=True, env=environment, check=False)
    assert answer.returncode == 2 and "RUN_ID | JOB | FOLDER" in answer.stderr and "one argument is needed" in answer.stderr
    helped = subprocess.run([sys.executable, "cluster/look.py", "--help"], capture_output=True, text=True, env=environment, check=False)
    assert (helped.returncode, helped.stderr) == (0, "") and "RUN_ID | JOB | FOLDER" in helped.stdout
