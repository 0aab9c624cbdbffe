"""Chooses the options of the Java that this process starts for Spark: most jobs end before what Java does for long ones has paid.

`make` writes the archive of classes when it installs Spark (`cluster/local/class_archive.py`).
"""

import os
from importlib.util import find_spec
from pathlib import Path

QUIET = "-Xlog:cds*=off"
"""Java ignores an archive that does not fit without a warning."""
_OPTIONS = "SPARK_SUBMIT_OPTS"
_COLLECTOR = "-XX:+UseParallelGC"
"""Java's default collector works beside the job to keep pauses short, which matter to nobody here."""
_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=18000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=1200000",
)
"""How often Java runs a method before it compiles it a second time, with all optimizations: thirty times its defaults. With these, the
second compiler took a third of Java's processor time for a small ETL; what a large table runs for every row soon reaches either."""
SHORT_JOB_OPTIONS = (_COLLECTOR, *_SECOND_COMPILER)


def archive_path() -> Path:
    """The archive of this environment's Spark, which may not exist."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lockstep-classes.jsa"


def archive_options() -> tuple[str, str]:
    return QUIET, f"-XX:SharedArchiveFile={archive_path()}"


def set_java_options() -> None:
    """Have a Java that this process starts load its classes from the archive, if there is one, and spare what only long jobs need. Options
    of the same kind that SPARK_SUBMIT_OPTS has already stay alone."""
    options = os.environ.get(_OPTIONS, "")
    added: list[str] = []
    if "Archive" not in options and archive_path().exists():
        added += archive_options()
    if "GC" not in options:
        added.append(_COLLECTOR)
    if "Tier" not in options and "Compil" not in options:
        added += _SECOND_COMPILER
    os.environ[_OPTIONS] = " ".join([options, *added]).strip()
