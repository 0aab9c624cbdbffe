"""Lets Java start from an archive of classes, which `make` writes when it installs Spark (`cluster/local/class_archive.py`)."""

import os
from importlib.util import find_spec
from pathlib import Path

QUIET = "-Xlog:cds*=off"
"""Java ignores an archive that does not fit without a warning."""
_OPTIONS = "SPARK_SUBMIT_OPTS"


def archive_path() -> Path:
    """The archive of this environment's Spark, which may not exist."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lockstep-classes.jsa"


def use_class_archive() -> None:
    """Have a Java that this process starts load its classes from the archive, if there is one and no other is asked for."""
    options = os.environ.get(_OPTIONS, "")
    if archive_path().exists() and "Archive" not in options:
        os.environ[_OPTIONS] = f"{options} {QUIET} -XX:SharedArchiveFile={archive_path()}".strip()
