"""From a config to a committed dataset version, by the steps that `pipelines.etl` lists: if the version exists, the run ends where it is
named."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pyarrow.fs import FileSystem, LocalFileSystem
from pyspark.sql import SparkSession

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.sources.base import NoIncrementError, RawTables, raw_tables
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, commit, read_manifest, remove_attempt, remove_debris
from pipelines.data.versions.data_profile import Page, Survey
from pipelines.data.versions.erasures import dataset_lock, has_erasures, refuse_unfinished_erasures
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.versions import Version, confirm, open_version
from pipelines.errors import ConfigError, DatasetError
from pipelines.etl.identity import check_unchanged, collect_sources, encoding_distributions, version_name
from pipelines.etl.increments.plan import Increment, find_parent, plan_increment
from pipelines.etl.make import WrittenAttempt, make
from pipelines.etl.query import analyse
from pipelines.etl.splits.shares import check_shares
from pipelines.etl.summary import log_notes
from pipelines.runtime.imports import meanwhile
from pipelines.runtime.interrupts import DeferredSignals, mark_done
from pipelines.spark.ambient_settings import check_executors
from pipelines.spark.job_endings import driver_errors, stop_tasks
from pipelines.spark.session import restored_settings, session, temporary_cache
from pipelines.spark.stages import Stages, event_log, spark_stages
from pipelines.tracking.job_runs import EtlRun

log = logging.getLogger(__name__)


@driver_errors()
@restored_settings()
def run(config: Config, page: Page | None = None, parent_name: str = "") -> Manifest:
    """Make the dataset version that the config describes, unless it exists. `page` draws what the run in MLflow shows of the data. With the
    name of a parent, or PREVIOUS, only rows that came after it are read, where that gives the rows of an ETL in full. Raises the
    LockstepErrors of its stages. A failed attempt leaves no version, and removes its files."""
    parent = find_parent(config, parent_name) if parent_name else None
    if parent_name and not parent:
        log.warning("all rows are read: %s holds no version that was made from this config", config.dataset.path)
    stages = Stages()
    tables = raw_tables(config.source)
    _check_output_is_outside(config, tables)
    before = collect_sources(config.source, tables, lambda table: table.state())
    with meanwhile(partial(tracking.connect_early, config.tracking.uri)):
        with stages("spark"):
            spark = stages.spark = session(config.name)
            check_executors(spark, encoding_distributions(config))
        with stages("analysis"):
            warnings = analyse(spark, config, tables)
    with temporary_cache(spark), dataset_lock(config.dataset.path):
        refuse_unfinished_erasures(*storage.locate(config.dataset.path))
        return _make_version(spark, config, tables, before, warnings, stages, page, parent)


def _make_version(
    spark: SparkSession,
    config: Config,
    tables: RawTables,
    before: Sources,
    warnings: tuple[str, ...],
    stages: Stages,
    page: Page | None,
    parent: Version | None,
) -> Manifest:
    """Make the version. Packed or parsed tables stay in Spark's cache."""
    with stages("checksums"):
        sources = collect_sources(config.source, tables, lambda table: table.identity(spark))
    job = VersionJob(spark, config, tables, before, sources, warnings, stages, page)
    if parent:
        try:
            with stages("increment"):
                increment = plan_increment(spark, config, tables, parent)
            return _commit_version(job, increment) if increment else _up_to_date(config, parent.filesystem, parent.root, parent.manifest)
        except NoIncrementError as reason:
            _warn_of_full_read(parent, reason)
    return _commit_version(job)


@dataclass(frozen=True)
class VersionJob:
    """The facts that an ETL has before it reads rows."""

    spark: SparkSession
    config: Config
    tables: RawTables
    before: Sources
    """The tables' states before their rows were identified."""
    sources: Sources
    warnings: tuple[str, ...]
    stages: Stages
    page: Page | None


def _up_to_date(config: Config, filesystem: FileSystem, root: str, manifest: Manifest) -> Manifest:
    """A version that exists, which becomes the one to open."""
    log.info("%s is up to date", root)
    log_notes(manifest.notes)
    check_shares(manifest.shares, config.dataset)
    with _errors_as_warnings(root):
        if open_version(config.dataset.path, config.data_identity).root != root:
            confirm(filesystem, root)
    return manifest


def _commit_version(job: VersionJob, increment: Increment | None = None) -> Manifest:
    """Make a version of all rows, or of those of an increment, unless it exists."""
    config = job.config
    filesystem, folder = storage.locate(config.dataset.path)
    name = version_name(config, job.tables, job.sources, job.spark, increment.parent.digest if increment else "")
    attempt = Attempt(filesystem, f"{folder}/{name}", uuid4().hex[:8])
    if earlier := read_manifest(filesystem, attempt.root):
        return _up_to_date(config, filesystem, attempt.root, earlier)
    storage.check_creation(filesystem, folder)
    if has_erasures(filesystem, folder) and _reads_again(config, increment):
        log.warning("rows were erased from %s, and sources are read again: rows that are still in them come back", folder)
    with (
        dataset_lock(config.dataset.path),
        tracking.etl_run(config, {tracking.SPARK_APPLICATION: str(job.spark.sparkContext.applicationId)}) as tracked,
    ):
        try:
            return _commit_attempt(job, attempt, increment, tracked)
        except NoIncrementError as reason:
            tracked.tag({"etl.outcome": f"no version: all rows are read after all, since {reason}"})
            assert increment is not None, "only an increment raises it"
            _warn_of_full_read(increment.parent, reason)
    return _commit_version(job)


def _reads_again(config: Config, increment: Increment | None) -> bool:
    """Whether rows are read that another version had: all of an ETL in full, or those that came after a version that is not the newest."""
    return increment is None or increment.parent.root != open_version(config.dataset.path, config.data_identity).root


def _commit_attempt(job: VersionJob, attempt: Attempt, increment: Increment | None, tracked: EtlRun) -> Manifest:
    """Make and commit a version. Raises NoIncrementError if the rows of an increment show that all have to be read."""
    config, tables, sources, stages, filesystem = job.config, job.tables, job.sources, job.stages, attempt.filesystem
    attempts: list[WrittenAttempt] = []

    def work() -> Manifest:
        attempts.append(make(job.spark, config, sources, tables, job.warnings, attempt, stages, increment))
        check_unchanged(tables, job.before)
        if increment:
            _check_parent(increment.parent)
        if config.source.drift:
            with stages("drift"):
                _check_drift(config, attempt, attempts[0])
        with stages("commit"):
            manifest, report = attempts[0].manifest.model_copy(update={"run_id": tracked.run_id}), attempts[0].report
            return commit(filesystem, attempt.root, manifest, report.row_groups, report.quarantine, sources, report.side_files)

    with DeferredSignals() as signals:
        manifest = _commit_or_clean_up(work, attempt, signals)
        with suppress(SystemExit), signals.admitted():  # a signal skips the rest, but is no failure
            with _errors_as_warnings(attempt.root):
                remove_debris(filesystem, attempt.root.rpartition("/")[0])
            _show_version(tracked, manifest, _survey(manifest, sources, attempts[0], stages), job.page, attempt.root)
        mark_done()
        signals.forget()
    stages.log_seconds()
    return manifest


def _warn_of_full_read(parent: Version, reason: NoIncrementError) -> None:
    log.warning("all rows are read, not only those that came after %s: %s", parent.manifest.version, reason)


def _check_parent(parent: Version) -> None:
    """Raises DatasetError if the parent was removed since it was opened, or rows were erased from it: a store has no lock that would have
    kept that off."""
    manifest = read_manifest(parent.filesystem, parent.root)
    if manifest is None or manifest.attempt != parent.manifest.attempt:
        raise DatasetError(
            f"{parent.root} is not the version that --from began with: rows were erased from it, or it was removed; run the command again"
        )


def _check_drift(config: Config, attempt: Attempt, written: WrittenAttempt) -> None:
    """Raises QualityError if the rows that were read, without those of a parent, are too far from those of the previous version."""
    from pipelines.diff.gate import check_drift  # noqa: PLC0415, SciPy takes time, and only who sets limits needs it

    check_drift(config, Version(attempt.filesystem, attempt.root, written.manifest, written.new_rows))


def _survey(manifest: Manifest, sources: Sources, written: WrittenAttempt, stages: Stages) -> Survey:
    """The content of the page about the data. It describes columns of the query, and the folds are not among them."""
    assert stages.spark is not None, "rows have been read"
    summary, refused = written.summary, written.report.samples
    encoders = {name: fitted for name, fitted in manifest.encoders.items() if name not in (manifest.folds.rows if manifest.folds else ())}
    manifest = manifest.model_copy(update={"encoders": encoders})
    page_data = summary.samples, summary.contents, refused, stages.seconds
    spark, events = spark_stages(stages.spark, stages.spans), event_log(stages.spark)
    return Survey(written.config, manifest, sources, *page_data, spark, events, summary.values)


def _show_version(tracked: EtlRun, manifest: Manifest, survey: Survey, page: Page | None, root: str) -> None:
    """Log a committed version to its run in MLflow, with the page about the data."""
    with _errors_as_warnings(root):
        tracked.finish(manifest, survey.seconds, survey.spark)
    with _errors_as_warnings(root):
        files = page(survey) if page is not None else {}
        tracked.log_texts(files)
        pages = [tracked.artifact_page(name) for name in files if name.endswith(".html")]
        tracked.describe(tracking.describe_etl(survey.config, manifest, sum(survey.seconds.values()), *pages[:1]))


def _check_output_is_outside(config: Config, tables: RawTables) -> None:
    """Raises ConfigError if ETL's output would become part of a table that it reads."""
    filesystem, folder = storage.locate(config.dataset.path)
    for name, table in tables.items() if isinstance(filesystem, LocalFileSystem) else ():
        if table.would_hold(f"{folder}/{'0' * 12}/manifest.json"):
            raise ConfigError(
                f"dataset.path: {config.dataset.path} lies where source.tables.{name} is read from, so that each version would "
                "become raw data; give a folder outside, or a narrower path for the table"
            )


def _commit_or_clean_up(work: Callable[[], Manifest], attempt: Attempt, signals: DeferredSignals) -> Manifest:
    """The manifest that `work` commits. If it fails or is interrupted, the files of the attempt are removed, unless they have been
    committed."""
    try:
        with signals.admitted(), driver_errors():
            return work()
    except BaseException as error:
        with suppress(DatasetError, OSError):
            committed = read_manifest(attempt.filesystem, attempt.root)
            if committed is not None and committed.attempt == attempt.name:
                _warn(attempt.root, error)
                return committed
            stop_tasks()
            remove_attempt(attempt.filesystem, attempt.root, attempt.name)
        raise


@contextmanager
def _errors_as_warnings(root: str) -> Iterator[None]:
    """Around everything after the commit: the version exists, so errors become warnings."""
    try:
        yield
    except Exception as error:
        _warn(root, error)


def _warn(root: str, error: BaseException) -> None:
    cause = "it was asked to leave" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}".splitlines()[0]
    log.warning("%s is committed; afterwards %s", root, cause)
