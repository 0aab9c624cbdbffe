"""Which commit of the code made a run."""

import os
import subprocess
import sys
from pathlib import Path

from pipelines.config import home

GIT_COMMIT = "git.commit"
"""The tag of every run."""
_COMMAND = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def git_commit() -> str:
    """Of the code as it was submitted, whose copy has no history; else of the folder of the program that runs, the current one, or
    LOCKSTEP_HOME. With `-dirty` behind it where files differ from it; empty where there is no git."""
    if submitted := os.environ.get("LOCKSTEP_GIT_COMMIT"):
        return submitted
    folders = [Path(sys.argv[0]).absolute().parent, Path.cwd(), home()]
    return next(filter(None, map(_commit, folders)), "")


def _commit(folder: Path) -> str:
    try:
        return subprocess.run(["git", "-C", folder, *_COMMAND], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
