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
DEAD_ACTOR = "The actor died unexpectedly before finishing this task.\n\tclass_name: {}\n\tactor_id: 1"
CASES = {
    "late_proxy": (1, "Proxies not available after 60s.", ["RERUN", "PASSED", "PASSED"]),
    "dead_proxy": (1, DEAD_ACTOR.format("ProxyActor"), ["RERUN", "PASSED", "PASSED"]),
    "late_ray": (1, "Ray has started 2 times, and was late each time; this machine has 2 CPUs", ["RERUN", "PASSED", "PASSED"]),
    "no_port": (9, "OSError: [Errno 98] Address already in use", ["RERUN", "ERROR", "RERUN", "ERROR"]),
    "other_rows": (1, "the dataset has other rows", ["ERROR", "ERROR"]),
    "dead_worker": (1, DEAD_ACTOR.format("RayTrainWorker"), ["ERROR", "ERROR"]),
}
"""By name: how often the start of a server fails, with what, and what becomes of its two tests."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of all cases, with the settings of this project."""
    folder = tmp_path_factory.mktemp("reruns")
    for name, (failures, message, _) in CASES.items():
        (folder / f"test_{name}.py").write_text(TESTS.format(failures=failures, message=message))
    command = [sys.executable, "-m", "pytest", "-c", "setup.cfg", "-p", "no:cacheprovider", "-v", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("case", CASES)
def test_what_only_the_machine_refused_is_tried_once_more(case: str, printed: str) -> None:
    outcomes = re.findall(rf"^\S*test_{case}\.py::\w+ (\w+)", printed, re.MULTILINE)
    assert outcomes == CASES[case][2], printed


def test_the_summary_names_what_was_run_again(printed: str) -> None:
    assert "rerun test summary info" in printed and "5 rerun in" in printed
