"""Every run has the commit of the code that made it, wherever it was started and wherever its data lie."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = f"import runpy; print(runpy.run_path('{ROOT}/pipelines/tracking/descriptions.py')['git_commit']())"
"""The module alone: its package takes seconds to import."""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a job and one commit."""
    folder = tmp_path / "code"
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs/job.py").write_text(JOB)
    git = ["git", "-C", folder, "-c", "user.name=me", "-c", "user.email=me@here"]
    for command in (["init", "--quiet"], ["add", "jobs"], ["commit", "--quiet", "--message=first"]):
        subprocess.run([*git, *command], check=True)
    return folder


def print_commit(script: Path, folder: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    command = [sys.executable, str(script)]
    process = subprocess.run(
        command, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def test_it_is_the_code_s_and_not_the_data_s(code: Path, tmp_path: Path) -> None:
    commit = subprocess.run(["git", "-C", code, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert print_commit(code / "jobs/job.py", elsewhere, LOCKSTEP_HOME=str(elsewhere)) == commit
    copied = elsewhere / "job.py"
    copied.write_text(JOB)
    assert print_commit(copied, code, LOCKSTEP_HOME=str(elsewhere)) == commit, "of the current folder"
    assert print_commit(copied, elsewhere, LOCKSTEP_HOME=str(code)) == commit, "of a copy, where the folder it was sent from is home"
    assert print_commit(copied, elsewhere, LOCKSTEP_HOME=str(elsewhere)) == ""
    assert print_commit(copied, elsewhere, LOCKSTEP_GIT_COMMIT="sent along") == "sent along"
    (code / "jobs/job.py").write_text(f"{JOB}  # changed")
    assert print_commit(code / "jobs/job.py", elsewhere) == f"{commit}-dirty"
