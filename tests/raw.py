"""Real and hostile raw data, which are not part of the repository."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("LOCKSTEP_RAW") or Path(__file__).parents[2] / "shared" / "data")


def raw(*parts: str) -> Path:
    """A file or folder of the real data; the test is skipped where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there; LOCKSTEP_RAW names the folder of the real data")
    return path
