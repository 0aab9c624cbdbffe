"""Keeps the files of a training's own Ray private to this user."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.errors import LockstepError, TrainingError
from pipelines.runtime import atomic


@contextmanager
def ray_folder() -> Iterator[str]:
    """A folder for the sockets and logs of a Ray. Ray opens it to everyone, so it is inside one that only this user can enter.

    It is removed at the end of the block, unless that raises an error which Ray's logs may explain. It is in /tmp and not in
    TMPDIR, since the path of a socket has at most 107 characters.
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
    """Create the token for Ray's authentication, unless there is one, in a file of mode 600 in a folder of mode 700.

    Ray itself would create it at its first start, in a file that every user can read.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH") or os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return
    file = Path.home() / ".ray/auth_token"
    with suppress(PermissionError):  # the file is another user's; Ray will report what it cannot read
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.chmod(0o700)
        if file.exists():
            file.chmod(0o600)
            return
        atomic.create_file(file, secrets.token_hex(32).encode(), mode=0o600)  # if another process was faster, its token is kept
