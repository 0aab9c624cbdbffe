"""From a config to a committed dataset version.

1. Paths are looked for, then query and expectations are analysed on empty tables: what is wrong with them is said at once.
2. The sources' checksums and the config name the version. If it is there, that is all.
3. Tables are parsed, malformed records set aside, and the query is run.
4. Every row gets its split, or the reason why it is refused, and the encoders are fitted on the training split.
5. Rows move to their parts, where they are encoded, sorted and written, or set aside.
6. If rows balance, the manifest is created: from this moment there is a version.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyarrow.fs import LocalFileSystem
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.source import Source
from pipelines.dataset import storage
from pipelines.dataset.commit import commit, read_manifest, remove_attempt, remove_debris
from pipelines.dataset.manifest import Manifest
from pipelines.dataset.sources import SourceFile, Sources
from pipelines.dataset.versions import confirm, open_version
from pipelines.errors import ConfigError, DatasetError, SourceError
from pipelines.etl.analysis import analyse
from pipelines.etl.attempt import Attempt
from pipelines.etl.driver import driver_errors
from pipelines.etl.executors import check_executors
from pipelines.etl.identity import version_name
from pipelines.etl.make import make
from pipelines.etl.progress import Stages
from pipelines.etl.session import session
from pipelines.interrupts import Deferred, done
from pipelines.sources.base import RawTable
from pipelines.sources.faults import naming_table, source_errors
from pipelines.sources.formats import RawTables, raw_tables

log = logging.getLogger(__name__)

_VERSION = re.compile(r"[0-9a-f]{12}")


@driver_errors()
def run(config: Config) -> Manifest:
    """Make the dataset version that the config describes, unless it is there already.

    Raises the LockstepErrors of its stages. An attempt that fails leaves no version, and removes what it wrote.
    """
    stages = Stages()
    tables = raw_tables(config.source)
    _check_apart(config, tables)
    before = _of_tables(config.source, tables, lambda table: table.state())
    with stages("spark"):
        spark = stages.spark = session(config.name)
        check_executors(spark)
    with stages("analysis"):
        warnings = analyse(spark, config, tables)
    with _freed(spark):
        return _made(spark, config, tables, before, warnings, stages)


def _made(spark: SparkSession, config: Config, tables: RawTables, before: Sources, warnings: tuple[str, ...], stages: Stages) -> Manifest:
    """The version. Tables that are packed or parsed on the way stay in Spark's cache."""
    with stages("checksums"):
        sources = _of_tables(config.source, tables, lambda table: table.identity(spark))
    filesystem, folder = storage.locate(config.dataset.path)
    attempt = Attempt(filesystem, f"{folder}/{version_name(config, tables, sources, spark)}", uuid4().hex[:8])
    if earlier := read_manifest(filesystem, attempt.root):
        log.info("%s is up to date", attempt.root)
        with _warned(attempt.root):
            if open_version(config.dataset.path, config.data_identity).root != attempt.root:
                confirm(filesystem, attempt.root)
        return earlier
    with tracking.etl_run(config, {tracking.SPARK_APPLICATION: str(spark.sparkContext.applicationId)}) as tracked:

        def work() -> Manifest:
            ours, report = make(spark, config, sources, tables, warnings, attempt, stages)
            check_unchanged(tables, before)
            with stages("commit"):
                ours = ours.model_copy(update={"run_id": tracked.run_id})
                return commit(filesystem, attempt.root, ours, report.row_groups, report.quarantine, sources)

        with Deferred() as signals:
            manifest = _committed(work, attempt, signals)
            with suppress(SystemExit), signals.admitted():  # which cuts short what follows, and makes no failure of it
                with _warned(attempt.root):
                    _sweep(attempt, folder)
                with _warned(attempt.root):
                    tracked.finish(manifest, stages.seconds)
            done()
            signals.forget()
    return manifest


def _check_apart(config: Config, tables: RawTables) -> None:
    """Raises ConfigError if what ETL writes would become part of a table that it reads."""
    filesystem, folder = storage.locate(config.dataset.path)
    if not isinstance(filesystem, LocalFileSystem):
        return
    for name, table in tables.items():
        if table.would_hold(f"{folder}/{'0' * 12}/manifest.json"):
            raise ConfigError(
                f"dataset.path: {config.dataset.path} lies where source.tables.{name} is read from, so that each version would "
                "become raw data; give a folder outside, or a narrower path for the table"
            )


def check_unchanged(tables: RawTables, before: Sources) -> None:
    """Raises SourceError if a table is not in the `state` that it was in before: rows may be of either."""
    for name, table in tables.items():
        if changed := sorted({file.path for file in set(before[name]) ^ set(table.state())}):
            raise SourceError(f"source.tables.{name}: {', '.join(changed[:5])} changed while being read; run again once it is whole")


def _of_tables(source: Source, tables: RawTables, ask: Callable[[RawTable[Any]], tuple[SourceFile, ...]]) -> Sources:
    found = {}
    for name, table in tables.items():
        with naming_table(name), source_errors(source):
            found[name] = ask(table)
    return found


@contextmanager
def _freed(spark: SparkSession) -> Iterator[None]:
    """Free Spark's cache at the end. Not if the process leaves on a signal, which may have broken off a call to Spark."""
    try:
        yield
    except Exception:
        _free(spark)
        raise
    _free(spark)


def _free(spark: SparkSession) -> None:
    with suppress(PySparkException, Py4JError, OSError):
        spark.catalog.clearCache()


def _committed(work: Callable[[], Manifest], attempt: Attempt, signals: Deferred) -> Manifest:
    """What `work` commits. If it fails or is interrupted, what the attempt wrote is removed; unless it is the version by then,
    and that is what counts."""
    try:
        with signals.admitted(), driver_errors():
            return work()
    except BaseException as error:
        with suppress(DatasetError, OSError):
            found = read_manifest(attempt.filesystem, attempt.root)
            if found is not None and found.attempt == attempt.name:
                _warn(attempt.root, error)
                return found
            remove_attempt(attempt.filesystem, attempt.root, attempt.name)
        raise


@contextmanager
def _warned(root: str) -> Iterator[None]:
    """Around what follows the commit: the version is there, so nothing that fails now makes a failure of it."""
    try:
        yield
    except Exception as error:
        _warn(root, error)


def _warn(root: str, error: BaseException) -> None:
    what = "it was asked to leave" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}".splitlines()[0]
    log.warning("%s is committed; afterwards %s", root, what)


def _sweep(attempt: Attempt, folder: str) -> None:
    """Remove what attempts at any version of this dataset left when they died, a day ago or more."""
    for entry in storage.entries(attempt.filesystem, folder):
        if _VERSION.fullmatch(entry.base_name):
            remove_debris(attempt.filesystem, entry.path)
