"""Options that the ETL benchmarks share: of their command lines, and of the Spark that they start."""

import tempfile
from argparse import ArgumentParser
from pathlib import Path

FOLDER = Path(tempfile.gettempdir()) / "lockstep-benchmark-etl"


def add_options(parser: ArgumentParser, folder: Path = FOLDER) -> None:
    """Add --cores and --folder."""
    parser.add_argument("--cores", default="*", help="of Spark; by default all")
    parser.add_argument("--folder", type=Path, default=folder, help="raw rows are kept here")


def submit_arguments(cores: str, memory: str = "") -> str:
    """PYSPARK_SUBMIT_ARGS of a Spark on this machine, with `memory` for its JVM, or Spark's default."""
    memory_option = f"--driver-memory {memory} " if memory else ""
    return f"--master local[{cores}] {memory_option}--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false pyspark-shell"
