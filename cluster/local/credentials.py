"""Secrets of the servers: made at the first start, kept in files that only this user reads, never in a command line."""

import secrets
from pathlib import Path

from pipelines import atomic


def secret(folder: Path, name: str) -> Path:
    """The file of a secret below `folder`; a random one is made if there is none."""
    file = private(folder / "secrets") / name
    if not file.exists():
        write(file, secrets.token_hex(32))
    return file


def private(folder: Path) -> Path:
    """The folder, which is made for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write(file: Path, text: str) -> Path:
    """Write a file that nobody else can read at any moment."""
    atomic.replace(file, text.encode(), mode=0o600)
    return file


def content(file: Path) -> str:
    """The secret that a file holds."""
    return file.read_text().strip()
