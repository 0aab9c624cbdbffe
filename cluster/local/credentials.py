"""Secrets of the servers: made at the first start, kept in files that only this user reads, never in a command line."""

import os
import secrets
from pathlib import Path


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
    """Write a file that nobody else reads at any moment."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
    new.rename(file)
    return file


def content(file: Path) -> str:
    """The secret that a file holds."""
    return file.read_text().strip()
