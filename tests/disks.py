"""File systems of a few bytes, and programs that answer as others do."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_file_system(folder: Path, size: str = "100k") -> Iterator[Path]:
    """A file system of `size` in a new folder; only root may mount one."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system, which fills up")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def write_program(file: Path, output: str, stream: int = 1, code: int = 0) -> Path:
    """A program that prints a line and exits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{output}' >&{stream}\nexit {code}\n")
    file.chmod(0o755)
    return file
