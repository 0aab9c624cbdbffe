"""From a config to a committed dataset version.

1. The sources' checksums and the config name the version. If it is there, that is all.
2. Tables are parsed and the query is run; what is refused so far goes to the quarantine.
3. Every row gets its split, and the encoders are fitted on the training split.
4. Rows move to their parts, where they are encoded, sorted and written.
5. The manifest is created: from this moment there is a version.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, reduce
from hashlib import sha256
from importlib.metadata import version
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.features import Bpe
from pipelines.config.source import Source, Table
from pipelines.dataset import storage
from pipelines.dataset.commit import commit, read_manifest, remove_attempt, remove_debris
from pipelines.dataset.manifest import FORMAT, SPLITS, Manifest
from pipelines.dataset.sources import SourceFile, Sources
from pipelines.errors import DatasetError
from pipelines.etl import order
from pipelines.etl.attempt import Attempt, Report
from pipelines.etl.checksums import check_unchanged, checksums, stats
from pipelines.etl.describe import describe
from pipelines.etl.executors import check_executors
from pipelines.etl.faults import driver_errors, naming_table, source_errors
from pipelines.etl.fit import fit, raw_schema
from pipelines.etl.progress import Stages
from pipelines.etl.quality import check_quarantined, expectations
from pipelines.etl.query import run_query
from pipelines.etl.session import session, weigh_batches
from pipelines.etl.sources import read_tables
from pipelines.etl.write import Job, encoded_bytes, part_numbers, write_parts, write_refused
from pipelines.features import ENCODERS_VERSION, check_columns

log = logging.getLogger(__name__)

_VERSION = re.compile(r"[0-9a-f]{12}")


@driver_errors()
def run(config: Config) -> Manifest:
    """Make the dataset version that the config describes, unless it is there already.

    Raises the LockstepErrors of its stages. An attempt that fails leaves no version, and removes what it wrote.
    """
    stages = Stages()
    with stages("spark"):
        spark = stages.spark = session(config.name)
        check_executors(spark)
    with stages("checksums"):
        before = _of_tables(config.source, stats)
        sources = _of_tables(config.source, partial(checksums, spark))
    filesystem, folder = storage.locate(config.dataset.path)
    attempt = Attempt(filesystem, f"{folder}/{_version(config, sources, spark)}", uuid4().hex[:8])
    if earlier := read_manifest(filesystem, attempt.root):
        log.info("%s is up to date", attempt.root)
        return earlier
    with tracking.etl_run(config, {tracking.SPARK_APPLICATION: str(spark.sparkContext.applicationId)}) as tracked:
        with driver_errors(), _undone_on_failure(attempt):
            with _freed(spark):
                ours, report = _write(spark, config, sources, attempt, stages)
            check_unchanged(config.source.tables, before)
            with stages("commit"):
                ours = ours.model_copy(update={"run_id": tracked.run_id})
                manifest = commit(filesystem, attempt.root, ours, report.row_groups, report.quarantine, sources)
        _sweep(attempt, folder)
        tracked.finish(manifest, stages.seconds)
    return manifest


def _of_tables(source: Source, look: Callable[[Table], tuple[SourceFile, ...]]) -> Sources:
    found = {}
    for name, table in source.tables.items():
        with naming_table(name), source_errors(source):
            found[name] = look(table)
    return found


def _version(config: Config, sources: Sources, spark: SparkSession) -> str:
    """Names the version by all that decides its rows; paths do not."""
    inputs = {
        "sources": {name: sorted(file.checksum for file in files) for name, files in sources.items()},
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


def _write(spark: SparkSession, config: Config, sources: Sources, attempt: Attempt, stages: Stages) -> tuple[Manifest, Report]:
    """Write the attempt's files; the manifest still lacks its run."""
    dataset, limit = config.dataset, config.source.max_quarantined
    with stages("read"), source_errors(config.source):
        tables = read_tables(spark, config.source)
        rows, warnings = run_query(spark, config)
        check_columns(dataset, raw_schema(rows))
        _log_query(rows, warnings, config)
    with stages("quarantine"), source_errors(config.source):
        kept, refused = _sifted(rows, config)
        frames = [frame for frame in (tables.malformed, *refused) if frame is not None]
        report = write_refused(reduce(DataFrame.unionAll, frames), attempt) if frames else Report()
        parsed = tables.rows_parsed or rows.count()
        weigh_batches(rows, sum(file.bytes for files in sources.values() for file in files) / max(parsed, 1))
    check_quarantined(parsed, report.refused, limit, report.samples)
    with stages("fit"), source_errors(config.source):
        fitted = fit(kept, dataset)
    allowed = int(limit * parsed) - report.refused.total()
    with stages("write"), source_errors(config.source):
        parts = part_numbers(encoded_bytes(kept, fitted.rows, fitted.encoders), dataset.part_bytes)
        report.add(write_parts(kept, Job(attempt, fitted.encoders, parts, dataset.row_group_bytes, allowed)))
    check_quarantined(parsed, report.refused, limit, report.samples)
    manifest = describe(config, attempt, raw_schema(rows), fitted, report, parsed, warnings)
    order.check_splits({number: manifest.splits[split].rows for number, split in enumerate(SPLITS)}, dataset.split)
    return manifest, report


def _sifted(rows: DataFrame, config: Config) -> tuple[DataFrame, list[DataFrame | None]]:
    """Rows with their identity and split, and those that may not pass, as quarantine."""
    rows, unexpected = expectations(rows, config.source.expect)
    rows, repeats = order.without_repeats(order.identified(rows, config.dataset.key), config.dataset.key)
    rows, undealt = order.dealt(rows, config.dataset.split)
    return rows, [unexpected, repeats, undealt]


def _log_query(rows: DataFrame, warnings: tuple[str, ...], config: Config) -> None:
    for warning in warnings:
        log.warning("source.query: %s", warning)
    taken = {
        column for name, settings in config.dataset.encoders.items() for column in (*settings.inputs(name), *settings.learns_from(name))
    }
    if left_out := [name for name in rows.columns if name not in taken]:
        log.info("columns of the query left out: %s", ", ".join(left_out))


@contextmanager
def _freed(spark: SparkSession) -> Iterator[None]:
    """What is kept meanwhile is freed; not if the process leaves, whose call to Spark was broken off midway, or if Spark is gone."""
    try:
        yield
    except Exception:
        with suppress(PySparkException, Py4JError, OSError):
            spark.catalog.clearCache()
        raise
    spark.catalog.clearCache()


@contextmanager
def _undone_on_failure(attempt: Attempt) -> Iterator[None]:
    """Remove what the attempt wrote if it fails or is interrupted, unless it is the version by then."""
    try:
        yield
    except BaseException:
        with suppress(DatasetError, OSError):
            found = read_manifest(attempt.filesystem, attempt.root)
            if found is None or found.attempt != attempt.name:
                remove_attempt(attempt.filesystem, attempt.root, attempt.name)
        raise


def _sweep(attempt: Attempt, folder: str) -> None:
    """Remove what attempts at any version of this dataset left when they died, a day ago or more."""
    for entry in storage.entries(attempt.filesystem, folder):
        if _VERSION.fullmatch(entry.base_name):
            remove_debris(attempt.filesystem, entry.path)
