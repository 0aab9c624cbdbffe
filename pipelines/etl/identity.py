"""Names a version by all that decides its rows.

Where tables lie does not, for checksums stand for their bytes. But rows of whole files have their path, Hive's folders
`column=value` make a column, and idx files stand side by side: there, what a file is called is content too.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import version

from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.config.features import Bpe
from pipelines.config.source import Source, Table
from pipelines.dataset.manifest import FORMAT
from pipelines.dataset.sources import SourceFile, Sources
from pipelines.etl import files, order
from pipelines.features import ENCODERS_VERSION


def version_name(config: Config, sources: Sources, spark: SparkSession) -> str:
    """The name of the version that the config makes of the `sources`; another where any row may be another."""
    inputs = {
        "sources": {name: list(_inputs(config.source, config.source.tables[name], found)) for name, found in sources.items()},
        "config": config.data_identity,
        "format": FORMAT,
        "encoders": ENCODERS_VERSION,
        "order": order.VERSION,
        "spark": spark.version,
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
    }
    if any(isinstance(settings, Bpe) for settings in config.dataset.encoders.values()):
        inputs["tokenizers"] = version("tokenizers")
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def _inputs(source: Source, table: Table, found: tuple[SourceFile, ...]) -> Iterator[str]:
    """Each file's checksum, with as much of its path as rows can hold."""
    if table.format == "idx":  # a column for each file, in the config's order
        checksum_of = {file.path: file.checksum for file in found}
        yield from (checksum_of[file.path] for path in table.paths for file in files.find(path))
        return
    if table.format not in ("binaryFile", "parquet"):
        yield from sorted(file.checksum for file in found)
        return
    root = posixpath.commonpath([_normal(files.root_of(path)) for path in table.paths])
    named = table.format == "binaryFile" or any("_metadata" in sql.lower() for sql in (source.sql, *source.expect.values()))
    for checksum, name in sorted((file.checksum, posixpath.relpath(_normal(file.path), root)) for file in found):
        shown = name if named else "/".join(part for part in posixpath.dirname(name).split("/") if "=" in part)
        yield f"{checksum} {shown}".rstrip()


def _normal(path: str) -> str:
    """A path or URI in the form that all ways to list files agree on."""
    path = re.sub("^file:(//)?", "", path)
    return posixpath.abspath(f"/{path}" if "://" in path else path)
