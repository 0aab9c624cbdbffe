"""What a job does with SIGINT and SIGTERM."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipelines.runtime.interrupts import (
    DeferredSignals,
    FirstSignal,
    first_signal,
    handle_signals,
    is_not_caused_by_signal,
    record_signal,
    restored_signals,
)
from pipelines.spark.job_endings import JOB_MARK, stop_tasks

JOB = """
import os, signal, sys, time
from pipelines.errors import DatasetError
from pipelines.command_line import exit_on_error
from pipelines.runtime.interrupts import DeferredSignals, mark_done

def send(number):
    os.kill(os.getpid(), number)

def main():
    {0}

exit_on_error(main)
"""


@pytest.mark.parametrize(
    ("work", "code", "printed"),
    [
        ("send(signal.SIGTERM)", 143, ""),
        ("send(signal.SIGINT)", 130, ""),
        ("send(signal.SIGHUP)", 129, ""),
        ("raise KeyboardInterrupt", 130, ""),
        # What comes at once a second time does not cut the way out short.
        ("try:\n        send(signal.SIGTERM)\n    finally:\n        send(signal.SIGTERM); print('undone')", 143, "undone"),
        # Python ignores an exception in a destructor and in a hook of `fork`, but the signal counts.
        ("Lost = type('Lost', (), {'__del__': lambda self: send(signal.SIGTERM)}); Lost(); time.sleep(20); print('lost')", 143, ""),
        ("os.register_at_fork(before=lambda: send(signal.SIGINT)); os.fork() or os._exit(0); time.sleep(20); print('lost')", 130, ""),
        ("Lost = type('Lost', (), {'__del__': lambda self: sys.exit(signal.SIGTERM)}); Lost(); time.sleep(20); print('lost')", 143, ""),
        # A code that is none of a signal's is no signal, although 2 is the number of SIGINT.
        (
            "sys.stderr = open(os.devnull, 'w'); Lost = type('Lost', (), {'__del__': lambda self: sys.exit(2)}); Lost(); time.sleep(0.3); "
            "print('goes on')",
            0,
            "goes on",
        ),
        # What fails because of a signal is no failure.
        ("try:\n        send(signal.SIGTERM)\n    finally:\n        raise DatasetError('Spark is gone')", 143, ""),
        ("with DeferredSignals():\n        send(signal.SIGINT); print('begun')", 130, "begun"),
        ("mark_done(); send(signal.SIGTERM); print('done')", 0, "done"),
        ("import atexit; atexit.register(send, signal.SIGTERM)", 143, ""),
        # Without an error, nothing that Python does at the end is left out but to free memory.
        ("import atexit; atexit.register(print, 'at exit', end='')", 0, "at exit"),
        ("import threading; threading.Timer(0.3, print, ['of a thread']).start()", 0, "of a thread"),
        (
            "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor(1).submit(time.sleep, 0.3); print('idle thread')",
            0,
            "idle thread",
        ),
    ],
)
def test_a_job_leaves_with_the_signal_s_code_and_without_a_traceback(work: str, code: int, printed: str) -> None:
    # Python 3.12 warns of a fork beside a thread.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", JOB.format(work)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (code, printed, "")


AMID_A_CALL = """
import os, signal, time
from pipelines.runtime import interrupts
from pipelines.command_line import exit_on_error
from pipelines.spark.job_endings import JobCancellation

interrupts.REPEAT_SECONDS = 0.2
TO_SPARK = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.5); raise OSError('cancelled')"

def main():
    JobCancellation().install()
    with interrupts.DeferredSignals() as signals:
        try:
            with signals.admitted():
                exec(compile(TO_SPARK, "py4j/call.py", "exec"))
        finally:
            time.sleep(1.5)
            print("undone")

exit_on_error(main)
"""


def test_a_signal_amid_a_call_to_spark_does_not_cut_the_way_out_short() -> None:
    ended = subprocess.run([sys.executable, "-c", AMID_A_CALL], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (143, "undone", "")


DONE = """
import os, signal, time
from pipelines.command_line import exit_on_error
from pipelines.spark.job_endings import JobCancellation
from pipelines.runtime.interrupts import mark_done

TO_SPARK = "os.kill(os.getpid(), signal.SIGTERM)"

def main():
    JobCancellation().install()
    if {amid_a_call}:
        exec(compile(TO_SPARK, "py4j/call.py", "exec"))
    mark_done()
    if not {amid_a_call}:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0)
    print("finished")

exit_on_error(main)
"""


@pytest.mark.parametrize("amid_a_call", [True, False])
def test_p8_a_signal_that_comes_or_is_answered_after_the_job_is_done_does_not_count(amid_a_call: bool) -> None:
    """The first one waits for Spark's answer, and the job is done meanwhile."""
    ended = subprocess.run([sys.executable, "-c", DONE.format(amid_a_call=amid_a_call)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "finished", "")


GONE_JAVA = """
import logging, socket, struct, threading
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from pipelines.spark.job_endings import silence_broken_connections

def go():
    connection = server.accept()[0]
    connection.recv(100)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

logging.basicConfig()
silence_broken_connections()
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=go).start()
try:
    JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1])).jvm.java
except Py4JError as error:
    print(type(error).__name__)
"""


def test_java_that_goes_amid_a_call_is_an_exception_and_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", GONE_JAVA], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("Py4JError", "")


def test_a_signal_that_waits_comes_where_it_is_admitted() -> None:
    handled: list[int] = []
    with handle_signals(lambda number, frame: handled.append(number)):
        with DeferredSignals() as signals:
            signal.raise_signal(signal.SIGTERM)  # `kill` may give it to another thread, which may have to wait for a core
            assert handled == []
            with signals.admitted():
                assert handled == [signal.SIGTERM]
            signal.raise_signal(signal.SIGINT)
            signals.forget()
        assert handled == [signal.SIGTERM]


def test_a_signal_is_the_same_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pipelines.runtime.interrupts.time.monotonic", lambda: now[0])
    first_signal = FirstSignal()
    assert first_signal.take(signal.SIGTERM)
    now[0] += 1.9
    assert not first_signal.take(signal.SIGTERM)
    now[0] += 0.2
    assert first_signal.take(signal.SIGTERM)
    assert first_signal.number == signal.SIGTERM


@pytest.mark.parametrize(
    ("first", "printed"), [(SystemExit(143), []), (KeyboardInterrupt(), []), (OSError("gone"), ["Error closing cursor"])]
)
def test_what_a_library_logs_of_a_signal_is_not_printed(
    first: BaseException, printed: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SQLAlchemy does, whose cursor cannot be closed after a signal has cut off its query."""
    monkeypatch.setattr(caplog.handler, "filters", [is_not_caused_by_signal])
    try:
        try:
            raise first
        finally:
            raise RuntimeError("Cannot operate on a closed database.")
    except RuntimeError:
        logging.getLogger("sqlalchemy.pool").exception("Error closing cursor")
    assert caplog.messages == printed


def test_python_processes_of_this_job_are_ended_also_after_java_and_no_others() -> None:
    """A signal to the whole group ends Java first, and its Python processes belong to nobody: one would write a part after its removal."""
    worker = "[sys.executable, '-c', 'import time; time.sleep(200)', 'pyspark.worker']"
    code = f"import subprocess, sys; print(subprocess.Popen({worker}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    environments = (JOB_MARK, dict.fromkeys(JOB_MARK, "another job"))
    started = [
        subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, check=True)
        for variables in environments
    ]
    own_process, other_process = (psutil.Process(int(process.stdout)) for process in started)
    stop_tasks()
    is_own_alive, is_other_alive = (
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in (own_process, other_process)
    )
    other_process.kill()
    assert (is_own_alive, is_other_alive) == (False, True)


def leave(number: int, frame: object) -> None:
    """The handler of a job."""
    record_signal(number)
    raise SystemExit(128 + number)


def test_a_program_goes_on_after_a_job_that_it_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as error, restored_signals("json.tool"):
        signal.signal(signal.SIGINT, leave)
        signal.raise_signal(signal.SIGINT)
    assert error.value.__suppress_context__ and "json.tool" in sys.modules
    assert signal.getsignal(signal.SIGINT) is before and first_signal() is None


def test_a_job_that_is_asked_to_leave_by_sigterm_ends_the_program() -> None:
    with pytest.raises(SystemExit) as error, restored_signals():
        signal.signal(signal.SIGTERM, leave)
        signal.raise_signal(signal.SIGTERM)
    assert error.value.code == 143 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


IMPORTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
finished = True
"""


def test_an_interrupt_waits_for_the_imports_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_import.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), restored_signals("slow_import"):
        pytest.fail("the signal comes before the job")
    assert sys.modules.pop("slow_import").finished


@pytest.mark.parametrize(
    ("start", "code", "output"),
    [
        ("{} >&-", 0, ""),
        ("{} <&- >&- 2>&-", 0, ""),
        ("{} >/dev/full", 1, "error: standard output takes no more: No space left on device"),
        ("PYTHONIOENCODING=ascii {}", 0, r"\xe4"),
        ("trap '' HUP; {}", 0, "ä"),
    ],
    ids=["closed", "all closed", "full", "ASCII", "nohup"],
)
def test_output_that_takes_nothing_is_no_traceback(tmp_path: Path, start: str, code: int, output: str) -> None:
    (tmp_path / "job.py").write_text(JOB.format("print('ä'); send(signal.SIGHUP) if signal.getsignal(signal.SIGHUP) == 1 else None"))
    command = f"export PYTHONUTF8=1; {start.format(f'{sys.executable} {tmp_path}/job.py')}"
    ended = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (code, output)
