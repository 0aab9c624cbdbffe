"""Names a version by everything that decides its rows, and finds out whether a table has changed since its files were listed.

The location of tables is not part of the name, since checksums identify their bytes. Relative file names are part of it where they
decide rows: whole files have a path column, Hive folders `column=value` make a column, and idx files are joined by their order.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.config.source.source import Source
from pipelines.data.features import ENCODERS_VERSION
from pipelines.data.features.auto.choice import AUTO_VERSION
from pipelines.data.sources.base import RawTable, RawTables
from pipelines.data.sources.source_errors import naming_table, source_errors
from pipelines.data.versions.manifest import FORMAT
from pipelines.data.versions.raw_inputs import SourceFile, Sources
from pipelines.data.versions.source_files import collect_files
from pipelines.errors import SourceError
from pipelines.etl.splits import split_assignment
from pipelines.spark.ambient_settings import ambient_identity

LINES_AT_ONCE = 10_000


def version_name(config: Config, tables: RawTables, sources: Sources, spark: SparkSession, parent_digest: str = "") -> str:
    """The name of the version that the config makes from the `sources`, or from those that came after a parent with this digest. It changes
    whenever a row could change."""
    statements = (config.source.sql, *config.source.expect.values())
    lines = {name: iter(tables[name].identity_lines(files, statements)) for name, files in sources.items()}
    inputs: dict[str, Any] = {
        "config": config.data_identity,
        "format": FORMAT,
        "encoders": ENCODERS_VERSION,
        "order": split_assignment.VERSION,
        "spark": spark.version,
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
        "ambient": ambient_identity(spark),
    }
    if parent_digest:
        inputs["parent"] = parent_digest
    inputs |= {name: version(name) for name in encoding_distributions(config)}
    if config.dataset.has_auto:
        inputs["auto"] = AUTO_VERSION
    digest = sha256()
    for text in _json_texts({**inputs, "sources": lines}):
        digest.update(text.encode())
    return digest.hexdigest()[:12]


def _json_texts(inputs: dict[str, Any]) -> Iterator[str]:
    """The text of `json.dumps` with sorted keys, in pieces: the lines of `sources` may be as many as there are files."""
    yield "{"
    for number, (name, value) in enumerate(sorted(inputs.items())):
        yield f"{', ' * (number > 0)}{json.dumps(name)}: "
        if name != "sources":
            yield json.dumps(value, sort_keys=True)
            continue
        yield "{"
        for place, (table, lines) in enumerate(sorted(value.items())):
            yield f"{', ' * (place > 0)}{json.dumps(table)}: ["
            first = True
            while block := list(islice(lines, LINES_AT_ONCE)):
                yield f"{'' if first else ', '}{json.dumps(block)[1:-1]}"
                first = False
            yield "]"
        yield "}"
    yield "}"


def encoding_distributions(config: Config) -> set[str]:
    """The Python distributions whose versions decide how rows are encoded: decoders of files, and tokenizers."""
    return {name for settings in config.dataset.encoders.values() for name in settings.encodes_with}


def collect_sources(source: Source, tables: RawTables, read_files: Callable[[RawTable[Any]], Sequence[SourceFile]]) -> Sources:
    """The files of each table, which `read_files` lists. Raises SourceError, with the name of the table, if that fails."""
    sources: Sources = {}
    for name, table in tables.items():
        with naming_table(name), source_errors(source):
            sources[name] = read_files(table)
    return sources


def check_unchanged(tables: RawTables, before: Sources) -> None:
    """Raises SourceError if a table's `state` has changed: its rows may be a mixture."""
    for name, table in tables.items():
        after = table.state()
        if collect_files(before[name]) == collect_files(after):  # as columns, which takes little even for millions
            continue
        if changed := sorted({file.path for file in set(before[name]) ^ set(after)}):
            raise SourceError(f"source.tables.{name}: {', '.join(changed[:5])} changed while being read; run again once it is whole")
