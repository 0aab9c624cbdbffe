"""Keeps the files of a training's own Ray private to this user."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines import atomic
from pipelines.errors import LockstepError, TrainingError


@contextmanager
def ray_folder() -> Iterator[str]:
    """For a Ray's sockets and logs. Ray opens what it makes to everyone, so it lies in a folder that only this user enters.

    It goes when the Ray has gone, unless an error left that Ray's logs may explain. A socket's path has at most 107 characters:
    so not below TMPDIR.
    """
    folder, explained = tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"), True
    try:
        yield f"{folder}/ray"
    except Exception as error:
        explained = isinstance(error, LockstepError) and not isinstance(error, TrainingError)
        raise
    finally:
        if explained:
            shutil.rmtree(folder, ignore_errors=True)


def keep_token() -> None:
    """Have the token that Ray asks for in a file of mode 600 in a folder of mode 700. Ray itself would make it at the first start, in a
    file that every user reads."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH") or os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return
    file = Path.home() / ".ray/auth_token"
    with suppress(PermissionError):  # of somebody else's: Ray says what it misses
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.chmod(0o700)
        if file.exists():
            file.chmod(0o600)
            return
        atomic.create(file, secrets.token_hex(32).encode(), mode=0o600)  # where another process was faster, its token counts
