"""The command `jobs/report.py`: the page of a run, or of several compared."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.errors import ConfigError, TrackingError
from pipelines.report.arguments import ReportArguments
from pipelines.report.comparison import comparison_page
from pipelines.report.data_profile import DATA_PAGE
from pipelines.report.folds_page import folds_page
from pipelines.report.run_data import read_run_data
from pipelines.report.run_page import run_page
from pipelines.report.search_page import search_page
from pipelines.runtime import atomic
from pipelines.tracking.cross_validation_run import CROSS_VALIDATION
from pipelines.tracking.history import TRAINING, download, kind_of_run, newest_run
from pipelines.tracking.job_runs import BASELINE
from pipelines.tracking.search_run import SEARCH

ETL = "etl"
_OWN_PAGE = {ETL: "an ETL", CROSS_VALIDATION: "a cross-validation", SEARCH: "a search of settings"}
"""Kinds of runs that have a page of their own and are not compared, in words."""


def report_page(uri: str, run_ids: tuple[str, ...]) -> str:
    """The page of a run, or the comparison of several, as HTML; of an ETL, the page about its data, of a cross-validation all folds, and
    of a search its trials.

    Raises TrackingError for an unknown run or an unreachable server, ConfigError for a run that has no page of this kind, or stands twice.
    """
    if repeated := next((run_id for place, run_id in enumerate(run_ids) if run_id in run_ids[:place]), ""):
        raise ConfigError(f"run {repeated} stands twice, and is not compared with itself; name each run once")
    kinds = {run_id: kind_of_run(uri, run_id) for run_id in run_ids}
    pages = {ETL: _data_page, CROSS_VALIDATION: folds_page, SEARCH: search_page}
    if len(run_ids) == 1 and (page := pages.get(kinds[run_ids[0]])):
        return page(uri, run_ids[0])
    for run_id, kind in kinds.items():
        if kind in _OWN_PAGE:
            raise ConfigError(
                f"run {run_id} is {_OWN_PAGE[kind]}, and only trainings and baselines are compared; leave it out, or report it alone"
            )
        if kind not in (TRAINING, BASELINE):
            raise ConfigError(
                f"run {run_id} is {kind or 'none of Lockstep'}, which has no page; "
                "name a training, a baseline, an ETL, a cross-validation or a search"
            )
    run_data = [read_run_data(uri, run_id) for run_id in run_ids]
    return run_page(run_data[0]) if len(run_data) == 1 else comparison_page(run_data)


def _data_page(uri: str, run_id: str) -> str:
    """Download the page that the ETL has drawn."""
    with TemporaryDirectory() as name:
        download(uri, run_id, Path(name), (DATA_PAGE,))
        try:
            return (Path(name) / DATA_PAGE).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise TrackingError(
                f"run {run_id} is an ETL without {DATA_PAGE}: it ended before its page was drawn; name another run of jobs/etl.py"
            ) from error


def write_report(arguments: ReportArguments) -> str:
    """Write the page, and return a line that says where."""
    run_ids = tuple(run if isinstance(run, str) else newest_run(arguments.uri, run.experiment) for run in arguments.runs)
    file = arguments.file or Path(f"report-{'-'.join(run_id[:8] for run_id in run_ids)}.html")
    content = report_page(arguments.uri, run_ids).encode()
    try:
        atomic.write_file(str(file), content, durable=False)
    except OSError as error:
        raise ConfigError(f"--output is {file}, which cannot be written: {error.strerror}; choose another file") from error
    return f"{file.absolute()} ({len(content) / 1e6:.1f} MB)"
