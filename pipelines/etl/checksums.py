"""What the raw tables were when they were read: every file's size and checksum."""

import glob
import os
from hashlib import sha256

from pyspark.sql import SparkSession

from pipelines.config.source import Table
from pipelines.dataset.manifest import SourceFile


def checksums(spark: SparkSession, table: Table) -> tuple[SourceFile, ...]:
    """Every file of a table with its checksum, sorted by path."""
    paths = [table.path] if isinstance(table.path, str) else list(table.path)
    files = sorted(file for path in paths for file in glob.glob(path))
    found = []
    for file in files:
        with open(file, "rb") as stream:
            found.append(SourceFile(path=file, bytes=os.path.getsize(file), checksum=f"sha256:{sha256(stream.read()).hexdigest()}"))
    return tuple(found)
