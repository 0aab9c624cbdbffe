"""Secrets of the servers: generated at the first start, kept in files that only this user can read, never in a command line."""

import secrets
from pathlib import Path

from pipelines.runtime import atomic


def secret(folder: Path, name: str) -> Path:
    """The file of a secret below `folder`; a random secret is generated if there is none."""
    file = private(folder / "secrets") / name
    if not file.exists():
        write(file, secrets.token_hex(32))
    return file


def private(folder: Path) -> Path:
    """Create the folder, if needed, with access for this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write(file: Path, text: str) -> Path:
    """Write a file that no other user can read at any moment."""
    atomic.write_file(file, text.encode(), mode=0o600)
    return file


def content(file: Path) -> str:
    """The secret in a file."""
    return file.read_text(encoding="utf-8").strip()
