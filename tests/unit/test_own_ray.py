"""The Ray that a training starts for itself."""

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest
from ray._private import services
from waiting import wait_until

from pipelines.errors import TrainingError
from pipelines.launch import own_ray
from pipelines.runtime.compat import ray as ray_compat

LATE = "The current node timed out during startup. This could happen because some of the raylet failed to startup"


def test_p8_a_signal_to_the_group_is_left_to_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's processes start with SIGINT and SIGTERM blocked. Here another process starts in place of Ray's."""
    blocked_in_child = []

    def start(*_: Any, **__: Any) -> None:
        print_mask = "import signal; print(*(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
        ended = subprocess.run([sys.executable, "-S", "-c", print_mask], capture_output=True, text=True, check=True)
        blocked_in_child.extend(map(int, ended.stdout.split()))

    monkeypatch.setattr(own_ray.ray, "init", start)
    monkeypatch.setattr(own_ray, "_check_loopback", lambda: None)
    monkeypatch.setattr(own_ray, "_shut_down", lambda previous: None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with own_ray.own_ray(1):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert {signal.SIGINT, signal.SIGTERM} <= set(blocked_in_child)


class RayStarts:
    """Stands for `ray.init`: so many starts raise an error."""

    def __init__(self, failures: int, message: str) -> None:
        self.failures, self.message, self.count = failures, message, 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count <= self.failures:
            raise Exception(self.message)


@pytest.fixture
def starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RayStarts:
    starts = RayStarts(*request.param)
    monkeypatch.setattr(own_ray.ray, "init", starts)
    monkeypatch.setattr(own_ray, "_check_loopback", lambda: None)
    return starts


@pytest.mark.parametrize("starts", [(0, ""), (1, LATE)], indirect=True)
def test_a_node_that_is_late_on_a_busy_machine_is_started_again(starts: RayStarts) -> None:
    with own_ray.own_ray(1):
        assert starts.count == starts.failures + 1


def test_a_node_is_waited_for_as_long_as_its_processes_wait_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def get_node(address: str, node: str) -> str:
        looks.append(node)
        if len(looks) < 4:
            raise RuntimeError("no such node")
        return "here"

    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(ray_compat, "_SECONDS_BETWEEN_LOOKS", 0.0)
    with ray_compat.patient_start(lambda: 0.0), pytest.raises(RuntimeError, match="no such node"):
        services.get_node("address", "late")
    assert len(looks) == 1, "on a quiet machine Ray's own bound holds"
    with ray_compat.patient_start(lambda: 1e9):
        assert services.get_node("address", "late") == "here"


def test_seconds_without_a_core_are_counted_over_threads() -> None:
    cores = sorted(os.sched_getaffinity(0))[:1]
    compute = [sys.executable, "-S", "-c", f"import os; os.sched_setaffinity(0, {cores}); any(iter(int, 1))"]
    both = [psutil.Popen(compute) for _ in range(2)]
    try:
        wait_until(lambda: max(map(own_ray._core_wait_seconds, both)) > 0.05, "one of two that share a core waits")
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert own_ray._core_wait_seconds(both[0]) == 0, "it has ended"


@pytest.mark.parametrize("starts", [(own_ray.STARTS, LATE)], indirect=True)
def test_a_node_that_is_late_again_is_one_error_with_the_load(starts: RayStarts) -> None:
    error = r"Ray has started 2 times, and was late each time; .* a load of \d+; stop other programs, and run again"
    with pytest.raises(TrainingError, match=error), own_ray.own_ray(1):
        pass
    assert starts.count == own_ray.STARTS


@pytest.mark.parametrize("starts", [(1, "no disk")], indirect=True)
def test_another_error_of_a_start_stays_as_it_is(starts: RayStarts) -> None:
    with pytest.raises(Exception, match="no disk"), own_ray.own_ray(1):
        pass
    assert starts.count == 1
