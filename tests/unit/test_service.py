"""A server of `make cluster-up` is known by its process, whatever the clock and the signals do."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import service
from service import Service
from sessions import session_pids
from waiting import wait_until

ODD_NAME = "import time; open('/proc/self/comm', 'w').write('a) 1 (b'); time.sleep(60)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    server = Service("odd", "", [sys.executable, "-S", "-c", ODD_NAME], {}, lambda: True, tmp_path)
    yield server
    server.end()


def change_record(server: Service, **values: object) -> None:
    file = server.folder / "pids" / server.name
    file.write_text(json.dumps({"process": json.loads(file.read_text())["process"], **values}))


def test_a_server_is_known_after_a_step_of_the_clock(server: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil adds the time of the boot, which moves with the clock."""
    server.start()
    leader = server.leader()
    assert leader is not None
    wait_until(lambda: Path(f"/proc/{leader}/comm").read_text() == "a) 1 (b\n", "the process's other name")
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: 1.0)
    assert server.state() == "up"
    server.end()
    assert session_pids(leader) == []


def test_another_process_with_the_id_and_another_boot_are_not_the_server(server: Service) -> None:
    server.start()
    leader = server.leader()
    assert leader is not None
    try:
        boot, tick = service.process_start(leader).split()
        for start in (f"{boot} {int(tick) - 1}", f"another {tick}"):
            change_record(server, start=start)
            assert (server.leader(), server.state()) == (None, "down")
    finally:
        change_record(server, start=service.process_start(leader))


def test_a_record_of_an_earlier_version_is_read(server: Service) -> None:
    server.start()
    leader = server.leader()
    assert leader is not None
    try:
        change_record(server, created=1.0)
        assert server.state() == "down"
    finally:
        change_record(server, created=psutil.Process(leader).create_time())
    assert (server.leader(), server.state()) == (leader, "up")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_start_waits_for_the_record(server: Service, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(128 + number)

    def start_and_signal(process: int) -> str:
        os.kill(os.getpid(), number)
        return before_change(process)

    before_change = service.process_start
    monkeypatch.setattr(service, "process_start", start_and_signal)
    before = signal.signal(number, leave)
    try:
        with pytest.raises(SystemExit) as exit_request:
            server.start()
        assert signal.getsignal(number) == leave
    finally:
        signal.signal(number, before)
    monkeypatch.undo()
    assert exit_request.value.code == 128 + number and server.state() == "up"
    masks = Path(f"/proc/{server.leader()}/status").read_text()
    assert "SigBlk:\t0000000000000000\n" in masks


def test_a_server_without_a_record_is_ended(server: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def fail(process: int) -> str:
        started.append(process)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service, "process_start", fail)
    with pytest.raises(OSError, match="No space left"):
        server.start()
    assert len(started) == 1 and session_pids(started[0]) == []
