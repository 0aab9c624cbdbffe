"""For all tests."""

import json
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pipelines.runtime import interrupts, progress
from pipelines.spark.java_options import set_java_options

# Machines are shared: an example that takes long is no failure.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# A shell that starts the tests in the background has them ignore SIGINT, and all that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test's JVM lives for seconds: the compiler that optimizes and the concurrent collector take half of its processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
if find_spec("pyspark"):  # a machine that only trains can be without
    set_java_options()  # also for the Java of spark-submit

os.environ["RAY_AUTH_MODE"] = "token"  # here, since Ray reads it when it is imported, which test modules do

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes of tests share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")


TESTS = Path(__file__).parent
SECONDS = TESTS.parent / "build" / "test-seconds.json"
"""Seconds of all tests by file, of the last run in several processes."""
_seconds: defaultdict[str, float] = defaultdict(float)


_HANDLERS = {number: handler for number in interrupts.NUMBERS if (handler := signal.getsignal(number)) is not None}


@pytest.fixture(autouse=True)
def no_job_goes_on() -> Iterator[None]:
    """A command that a test runs in this process is over with the test: its handlers of signals, and the signal that it took. So are those
    that a session of Spark has installed, which is older than its first test."""
    interrupts.install(_HANDLERS)
    yield
    interrupts.install(_HANDLERS)
    interrupts._job.__init__()  # type: ignore[misc]


@pytest.fixture(autouse=True)
def no_command_speaks_for_others() -> Iterator[None]:
    """`--json`, `--quiet` and `--verbose` of a command that a test runs in this process hold until its end, and not for the next test."""
    forms = [(handler, handler.formatter, getattr(handler, "stream", None)) for handler in logging.getLogger().handlers]
    yield
    progress.speak("text")
    logging.getLogger("pipelines").setLevel(logging.NOTSET)
    for handler, formatter, stream in forms:
        handler.setFormatter(formatter)
        if isinstance(handler, logging.StreamHandler) and stream is not None:
            handler.stream = stream


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unit tests come first, then those with Spark, all in one process, then those with Ray, in one too. Of all other files, each is in
    one process. Of several processes one begins with Spark, which takes almost as long as the others need for all the rest."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(shared_session(item) or item.path.stem))
    turns = {"spark": -1 if hasattr(config, "workerinput") else 1, "ray": 2, "": 3}
    items.sort(key=lambda item: 0 if item.path.relative_to(TESTS).parts[0] in ("unit", "applications") else turns[shared_session(item)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Versions of pytest and pytest-xdist that do not suit each other run a file's tests in several processes, without a word."""
    if node.config.getoption("dist") == "loadgroup" and not all("@" in name for name in ids):
        pytest.exit("this pytest-xdist does not group tests under this pytest; install the versions of constraints.txt", returncode=4)


def shared_session(item: pytest.Item) -> str:
    """What a test shares because it takes long to start: Spark's session or Ray's cluster; empty without either."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" if "spark" in fixtures else "ray" if "ray_cluster" in fixtures else ""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("numprocesses", None):  # in the process that collects the reports of all
        SECONDS.parent.mkdir(exist_ok=True)
        SECONDS.write_text(
            json.dumps({file: round(seconds, 1) for file, seconds in sorted(_seconds.items(), key=lambda item: -item[1])}, indent=1)
        )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: those of a compressed file hold a time, and the processes must collect equal names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True, scope="module")
def default_tracking() -> Iterator[None]:
    """A model that a module logs sets MLflow's tracking of the whole process, and of those that it starts."""
    yield
    if "mlflow" in sys.modules:
        import mlflow

        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def default_registry() -> Iterator[None]:
    """So does MLflow's server in a test's process with the registry."""
    yield
    if "mlflow" in sys.modules:
        import mlflow

        mlflow.set_registry_uri(None)  # type: ignore[arg-type]
        os.environ.pop("MLFLOW_REGISTRY_URI", None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For torch on what is too small to share: on a busy machine threads that wait for each other take minutes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3-compatible store of our own, a ThreadedMotoServer."""
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store_options(store: Any) -> str:
    """What comes behind the question mark of a URI on it."""
    host, port = store.get_host_and_port()
    return f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
