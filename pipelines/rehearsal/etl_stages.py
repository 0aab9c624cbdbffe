"""Makes a dataset version of a draft's sample with ETL's own stages. Loads neither torch nor MLflow, which ETL does without."""

from pyarrow.fs import LocalFileSystem

from pipelines.config import home
from pipelines.config.load import parse, with_absolute_paths
from pipelines.data.sources.base import raw_tables
from pipelines.data.versions.commit import Attempt, commit
from pipelines.errors import LockstepError, MismatchError
from pipelines.etl.identity import collect_sources
from pipelines.etl.make import make
from pipelines.etl.query import analyse
from pipelines.rehearsal.process import RehearsalRequest, RehearsalResult
from pipelines.rehearsal.sampled_tables import use_samples
from pipelines.spark.job_endings import driver_errors
from pipelines.spark.session import restored_settings, session, temporary_cache
from pipelines.spark.stages import Stages

_VERSION = "0" * 12


def try_config(request: RehearsalRequest) -> RehearsalResult:
    """Run the stages of ETL on the sample."""
    try:
        return _make_version(request)
    except MismatchError as error:
        return RehearsalResult(unavailable=str(error))
    except LockstepError as error:
        return RehearsalResult(error=str(error), error_class=type(error).__name__)


def _make_version(request: RehearsalRequest) -> RehearsalResult:
    """Raises the LockstepErrors of the stages. How many rows are refused is for the caller to judge, since a sample has other shares."""
    config = with_absolute_paths(parse(dict(request.values), request.origin), home())
    try:
        with driver_errors():
            spark = session("lockstep init")
    except LockstepError as error:
        return RehearsalResult(unavailable=str(error))
    tables = raw_tables(config.source)
    with driver_errors(), restored_settings(), temporary_cache(spark):
        warnings = analyse(spark, config, tables)
        if request.only_analysis:
            return RehearsalResult()
        sampled = use_samples(config, request.folder, request.sampled_paths)
        tables = raw_tables(sampled.source)
        sources = collect_sources(sampled.source, tables, lambda table: table.identity(spark))
        attempt = Attempt(LocalFileSystem(), f"{sampled.dataset.path}/{_VERSION}", "trial")
        written = make(spark, sampled, sources, tables, warnings, attempt, Stages())
        report = written.report
        manifest = commit(
            attempt.filesystem, attempt.root, written.manifest, report.row_groups, report.quarantine, sources, report.side_files
        )
    assert manifest.balance is not None, "ETL counts its rows"
    return RehearsalResult(manifest.balance.parsed, dict(report.refused), dict(report.samples))
