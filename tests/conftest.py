"""For all tests."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Machines are shared: an example that takes long is no failure.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# A shell that starts the tests in the background has them ignore SIGINT, and all that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test's JVM lives for seconds: the compiler that optimizes and the concurrent collector take half of its processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

LONG = (
    *(
        "test_signals",
        "test_documents",
        "test_servers",
        "test_chaos",
        "test_benchmarks",
        "test_exact_runs",
        "test_demo",
        "test_train",
        "test_etl_jobs",
        "test_after_training",
    ),
    *("test_conserved", "test_hostile", "test_tasks_slices", "test_language_slices", "test_served_files"),
)
"""Files of about a minute and more, which begin first of those with processes: one that began last would leave a core idle."""

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes of tests share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests come first, then long files, the longest before the others."""

    def turn(item: pytest.Item) -> int:
        return -1 if item.path.parent.name == "unit" else LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG)

    items.sort(key=turn)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: those of a compressed file hold a time, and the processes must collect equal names."""
    return argname if isinstance(val, bytes) else None


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
