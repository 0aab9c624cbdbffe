"""What rank 0 exchanges with the run's directory."""

import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from groups import FORKING
from waiting import wait_until

from pipelines.launch.reports import REPLACED_EXIT_CODE, RankZeroReports, TrackedReports
from pipelines.launch.worker_failures import DeathRecorder
from pipelines.monitor.worker_heartbeat import Heartbeat
from pipelines.report.evaluation import archive_name
from pipelines.report.run_data import TrainingAttempt
from pipelines.tasks.details import EvaluationData
from pipelines.train.checkpoint.run_directory import ATTEMPT, ATTEMPTS, DEATHS, PROGRESS, STOP, RunDirectory
from pipelines.train.workers import WorkerContext


def begin(uri: str) -> RankZeroReports:
    folder = RunDirectory(uri)
    return RankZeroReports(folder, Heartbeat(folder, WorkerContext(), 10), 100, 3)


def linger(uri: str) -> None:
    begin(uri)
    time.sleep(60)


def test_p8_a_group_that_was_replaced_ends_itself(tmp_path: Path) -> None:
    old = FORKING.Process(target=linger, args=(str(tmp_path),))
    old.start()
    wait_until((tmp_path / "attempt").exists, "the first group's attempt")
    new = begin(str(tmp_path))
    old.join(30)
    assert old.exitcode == REPLACED_EXIT_CODE
    time.sleep(1.0)
    new.close()


@pytest.mark.parametrize("table", [{"x": [-1, 2**63]}, {"x": [1], "y": []}, {"x": ["\ud800"]}, {"x": [object()]}, {"x": None}])
def test_details_that_cannot_be_written_fail_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture, table: dict[str, Any]) -> None:
    folder = RunDirectory(str(tmp_path))
    reports = TrackedReports(folder, Heartbeat(folder, WorkerContext(), 10), Mock(), Mock(), 100, 3)
    reports.keep_evaluation(EvaluationData("test", {"kind": "own"}, {"worst": table}))
    reports.close()
    assert caplog.text.count("the run's page will lack something: ") == 1 and not folder.has(archive_name("test"))


def test_a_group_of_workers_is_noted_when_it_begins_and_when_it_has_saved_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunDirectory(str(tmp_path))
    monkeypatch.setattr("pipelines.launch.reports.slower_ways", lambda: ["kernels do not run here"])
    for first, steps, workers in ((0, 7, 2), (7, 20, 1)):
        reports = TrackedReports(folder, Heartbeat(folder, WorkerContext(), 10), Mock(), Mock(), 100, 3, workers)
        reports.step(first)
        reports.note_end(steps)
        reports.close()
    attempts = (folder.get_json(ATTEMPTS) or {})["attempts"]
    assert [(attempt["step"], attempt["workers"], attempt["steps"]) for attempt in attempts] == [(0, 2, 7), (7, 1, 20)]
    assert all(attempt["seconds"] <= attempt["ended"] for attempt in attempts)
    assert [(read.steps, read.slower) for attempt in attempts for read in [TrainingAttempt(**attempt)]] == [
        (steps, ["kernels do not run here"]) for steps in (7, 20)
    ]


def test_asking_whether_to_stop_does_nothing_else(tmp_path: Path) -> None:
    reports = begin(str(tmp_path))
    reports.step(41)
    assert [reports.must_stop_training() for _ in range(3)] == [False] * 3
    assert reports._heartbeat.step == 41
    reports.close()


def test_how_far_it_is_and_whether_to_stop_go_through_the_folder(tmp_path: Path) -> None:
    reports, folder = begin(str(tmp_path)), RunDirectory(str(tmp_path))
    reports.epoch(2)
    for number in (5, 6):
        reports.step(number)
    reports.log(7, {"train/loss": 0.5})
    assert not reports.must_stop_training()
    folder.put(STOP, b"")
    wait_until(reports.must_stop_training, "rank 0 to see the file that asks to stop")
    written = folder.get_json(PROGRESS)
    assert written and written.pop("attempt") == (folder.get(ATTEMPT) or b"").decode()
    assert written == {"first_step": 5, "step": 7, "steps": 100, "epoch": 2, "epochs": 3, "metrics": {"train/loss": 0.5}}
    reports.close()


def test_of_a_group_the_dead_are_named_and_not_those_that_lost_them(tmp_path: Path) -> None:
    """Ray wraps what a worker's own code raised, such as the lost connection to a dead one."""
    wrapper = RuntimeError("wrapped")
    wrapper._base_exc = ValueError("Connection reset by peer")  # type: ignore[attr-defined]
    DeathRecorder(str(tmp_path)).after_exception(None, {0: wrapper, 1: RuntimeError("A worker health check failed.\nmore")})
    assert (RunDirectory(str(tmp_path)).get_json(DEATHS) or {})["workers"] == {"1": "A worker health check failed."}
    assert (RunDirectory(str(tmp_path)).get_json(DEATHS) or {})["cut_off"] == [0]
    DeathRecorder(str(tmp_path)).after_exception(None, {0: wrapper})  # Ray does not know yet that worker 1 is dead
    written = RunDirectory(str(tmp_path)).get_json(DEATHS) or {}
    assert (written["workers"], written["cut_off"]) == ({}, [0])
    defect = RuntimeError("wrapped")
    defect._base_exc = ValueError("a bug")  # type: ignore[attr-defined]
    DeathRecorder(str(tmp_path)).after_exception(None, {0: wrapper, 1: defect})
    written = RunDirectory(str(tmp_path)).get_json(DEATHS) or {}
    assert (written["workers"], written["cut_off"]) == ({"1": "a bug"}, [0])
