"""Spark starts in a thread, whose error is raised where the session is needed, and which ends before the job's program goes on."""

from threading import Event
from typing import Any

import pytest

from pipelines.errors import MismatchError
from pipelines.spark import early_start as starting
from pipelines.spark.early_start import early_start, started_early


@pytest.fixture(autouse=True)
def without_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have started one."""
    monkeypatch.setattr(starting, "has_context", lambda: False)
    monkeypatch.setattr(starting.JobCancellation, "install", lambda _: None)


def test_the_error_of_the_start_is_raised_once_where_the_session_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, worker_modules: tuple[str, ...]) -> None:
        raise MismatchError(f"{name} has no Java, and no {worker_modules[0]}")

    monkeypatch.setattr(starting, "start_context", refuse)
    with started_early("digits", "numpy"):
        with pytest.raises(MismatchError, match="digits has no Java, and no numpy"):
            early_start.wait()
        early_start.wait()


def test_a_job_that_fails_first_raises_its_error_and_waits_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, has_ended = Event(), Event()

    def start(*values: Any) -> None:
        has_begun.set()
        has_ended.wait(0.2)
        has_ended.set()
        raise OSError("Java was left alone")

    monkeypatch.setattr(starting, "start_context", start)
    with pytest.raises(ValueError, match="an epoch is no number"), started_early("digits"):
        has_begun.wait(10)
        raise ValueError("an epoch is no number")
    assert has_ended.is_set()


def test_a_job_in_a_running_spark_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "has_context", lambda: True)
    monkeypatch.setattr(starting, "start_context", None)
    with started_early("digits"):
        early_start.wait()
