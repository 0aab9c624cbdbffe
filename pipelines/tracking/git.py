"""Finds the commit of the code that makes a run."""

import os
import subprocess
import sys
from pathlib import Path

from pipelines.config import home

GIT_COMMIT = "git.commit"
"""Tag of every run."""
_COMMAND = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def git_commit() -> str:
    """The commit of the submitted code, since an uploaded copy has no history, or else of the first of these folders that is a git
    checkout: that of the running program, the current one, LOCKSTEP_HOME. Ends in `-dirty` if files differ from the commit; empty
    without git."""
    if submitted := os.environ.get("LOCKSTEP_GIT_COMMIT"):
        return submitted
    folders = [Path(sys.argv[0]).absolute().parent, Path.cwd(), home()]
    return next(filter(None, map(_commit, folders)), "")


def _commit(folder: Path) -> str:
    try:
        return subprocess.run(["git", "-C", folder, *_COMMAND], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
