"""Where relative paths start, and files that settings are read from while a config is validated."""

import os
from pathlib import Path


def home() -> Path:
    """The folder that relative paths start from: LOCKSTEP_HOME, or the current folder."""
    return Path(os.environ.get("LOCKSTEP_HOME") or "").absolute()


def absolute_path(path: str, folder: Path) -> str:
    """A path that starts at `folder` if it is relative. URIs stay as they are, and so does no path."""
    return path if "://" in path or not path else str(folder / path)


def read_from_folder(folder: str, file: str, setting: str) -> bytes | None:
    """The content of a file in a folder on this machine's disk, which `setting` names; None if it is not there.

    Raises ValueError for a URI."""
    if "://" in folder:
        raise ValueError(f"{setting} is {folder}, and only a folder on a disk of this machine is read; name a copy of it there")
    try:
        return Path(folder, file).read_bytes()
    except OSError:
        return None


def missing_file(folder: str, file: str, setting: str) -> str:
    """The message where `read_from_folder` finds no file."""
    why = f"has no {file}" if Path(folder).is_dir() else "is no folder"
    return f"{setting} is {folder}, which {why}; name the folder of a model as Hugging Face's save_pretrained writes it"
