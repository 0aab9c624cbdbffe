"""The Ray that a training starts for itself."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from pipelines.launch import own_ray


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
