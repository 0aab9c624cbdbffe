"""A test is run once more where the machine refused what it needs, and only there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

starts = []

@pytest.fixture(scope="module")
def server():
    starts.append(1)
    if len(starts) <= {failures}:
        raise RuntimeError({message!r})

def test_one(server): ...
def test_other(server): ...
"""
DEAD_PROXY = "The actor died unexpectedly before finishing this task.\n\tclass_name: ProxyActor\n\tactor_id: 1"


@pytest.mark.parametrize(
    ("failures", "message", "outcome"),
    [
        (1, "Proxies not available after 60s.", "2 passed, 1 rerun"),
        (1, DEAD_PROXY, "2 passed, 1 rerun"),
        (1, "Ray has started 2 times, and was late each time; this machine has 2 CPUs", "2 passed, 1 rerun"),
        (9, "OSError: [Errno 98] Address already in use", "2 errors, 2 rerun"),
        (1, "the dataset has other rows", "2 errors"),
        (1, "The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker", "2 errors"),
    ],
)
def test_what_only_the_machine_refused_is_tried_once_more(tmp_path: Path, failures: int, message: str, outcome: str) -> None:
    file = tmp_path / "test_server.py"
    file.write_text(TESTS.format(failures=failures, message=message))
    command = [sys.executable, "-m", "pytest", "-c", "setup.cfg", "-p", "no:cacheprovider", str(file)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert re.search(rf"{outcome} in", printed), printed
    assert ("RERUN" in printed) == ("rerun" in outcome), "the summary names the test"
