"""Files figures and the page of a run with it in MLflow."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.data.versions.versions import Version
from pipelines.report.evaluation import FOLDER, add_raw_rows, read_splits, unpack
from pipelines.report.figures.svg_figures import draw_figures
from pipelines.report.folds_page import folds_page
from pipelines.report.run_data import collect, read_run_data
from pipelines.report.run_page import run_page
from pipelines.report.search_page import search_page
from pipelines.tracking.tracked_run import MlflowRun
from pipelines.tracking.training import TrainingRun

log = logging.getLogger(__name__)

REPORT = "report.html"


def file_report(run: TrainingRun, version: Version) -> None:
    """Log what the evaluation kept, its figures and the page. An error is logged and does not fail the training."""
    _file(run, version, lambda folder: collect(run.folder, folder))


def file_baseline(run: MlflowRun, version: Version, archives: Mapping[str, bytes]) -> None:
    """Log figures and page of a baseline, whose evaluations are in these archives by split."""

    def write(folder: Path) -> None:
        for split, content in archives.items():
            unpack(content, folder / FOLDER / split)

    _file(run, version, write)


def _file(run: MlflowRun, version: Version, collect_into: Callable[[Path], None]) -> None:
    """File what `collect_into` writes into a folder, with the figures of its evaluations, and the page."""
    with _page_errors_logged(run):
        with TemporaryDirectory() as name:
            folder = Path(name)
            collect_into(folder)
            add_raw_rows(folder / FOLDER, version)
            figures = {split.name: draw_figures(split) for split in read_splits(folder / FOLDER)}
            for split, split_figures in figures.items():
                for figure in split_figures:
                    if figure.svg:
                        (folder / FOLDER / split / f"{figure.name}.svg").write_bytes(figure.svg)
            run.file_folder(name)
        with TemporaryDirectory() as name:
            (Path(name) / REPORT).write_text(run_page(read_run_data(run.uri, run.run_id), figures, is_finishing=True), encoding="utf-8")
            run.file_folder(name)


def file_folds_page(run: MlflowRun) -> None:
    """Log the page of a cross-validation. An error is logged and does not fail it."""
    with _page_errors_logged(run):
        run.file(REPORT, folds_page(run.uri, run.run_id).encode())


def file_search_page(run: MlflowRun) -> None:
    """Log the page of a search of settings, whose files are logged already. An error is logged and does not fail it."""
    with _page_errors_logged(run):
        run.file(REPORT, search_page(run.uri, run.run_id).encode())


@contextmanager
def _page_errors_logged(run: MlflowRun) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log.warning(
            "run %s has no page: %s: %s; jobs/report.py %s --tracking.uri %s makes it",
            *(run.run_id, type(error).__name__, error, run.run_id, run.uri),
        )
