"""Makes a dataset version of a draft's sample with ETL's own stages, and checks that the training can begin."""

from pyarrow.fs import LocalFileSystem

from pipelines.config import Config, home
from pipelines.config.dataset.dataset import ByColumn, ByFraction
from pipelines.config.load import parse, with_absolute_paths
from pipelines.data.sources.base import raw_tables
from pipelines.data.versions.attempt import Attempt
from pipelines.data.versions.commit import commit
from pipelines.data.versions.folds import open_fold
from pipelines.errors import LockstepError, MismatchError
from pipelines.etl.make import make
from pipelines.etl.query import analyse
from pipelines.etl.run import collect_sources, temporary_cache
from pipelines.launch.checks import check_before_etl, check_training
from pipelines.rehearsal.process import TrialRequest, TrialResult
from pipelines.spark.driver import driver_errors
from pipelines.spark.progress import Stages
from pipelines.spark.session import restored_settings, session

_VERSION = "0" * 12


def try_config(request: TrialRequest) -> TrialResult:
    """Run the stages of ETL on the sample, and the checks before a training on the version that they make."""
    try:
        return _make_version(request)
    except MismatchError as error:
        return TrialResult(unavailable=str(error))
    except LockstepError as error:
        return TrialResult(error=str(error), error_class=type(error).__name__)


def _make_version(request: TrialRequest) -> TrialResult:
    """Raises the LockstepErrors of the stages. How many rows are refused is for the caller to judge, since a sample has other shares."""
    config = with_absolute_paths(parse(dict(request.values), request.origin), home())
    check_before_etl(config)
    try:
        with driver_errors():
            spark = session("lockstep init")
    except LockstepError as error:
        return TrialResult(unavailable=str(error))
    tables = raw_tables(config.source)
    with driver_errors(), restored_settings(), temporary_cache(spark):
        warnings = analyse(spark, config, tables)
        if request.only_analysis:
            return TrialResult()
        sampled = _sample_sources(config, request)
        tables = raw_tables(sampled.source)
        sources = collect_sources(sampled.source, tables, lambda table: table.identity(spark))
        attempt = Attempt(LocalFileSystem(), f"{sampled.dataset.path}/{_VERSION}", "trial")
        written = make(spark, sampled, sources, tables, warnings, attempt, Stages())
        report = written.report
        manifest = commit(
            attempt.filesystem, attempt.root, written.manifest, report.row_groups, report.quarantine, sources, report.raw_rows
        )
    if not request.sampled_paths:
        check_training(sampled, open_fold(sampled))
    assert manifest.balance is not None, "ETL counts its rows"
    return TrialResult(manifest.balance.parsed, dict(report.refused), dict(report.samples))


def _sample_sources(config: Config, request: TrialRequest) -> Config:
    """The config with the paths of the samples, which refuses no sample for its share of refused rows. A part of the rows may have none
    later than some time, so it is split by a hash."""
    tables = {
        name: table.model_copy(update={"path": request.sampled_paths[name]}) if name in request.sampled_paths else table
        for name, table in config.source.tables.items()
    }
    split = ByFraction() if request.sampled_paths and not isinstance(config.dataset.split, ByColumn) else config.dataset.split
    dataset = config.dataset.model_copy(update={"path": request.folder, "split": split})
    source = config.source.model_copy(update={"tables": tables, "max_quarantined": 1.0})
    return config.model_copy(update={"source": source, "dataset": dataset})
