"""Files figures and the page of a run with it in MLflow."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.report.evaluation import FOLDER, read_splits
from pipelines.report.figures.drawn import drawn
from pipelines.report.material import collect, material
from pipelines.report.run_page import run_page
from pipelines.tracking.training import TrainingRun

log = logging.getLogger(__name__)

REPORT = "report.html"


def file_report(run: TrainingRun) -> None:
    """Log what the evaluation kept, its figures and the page. An error is logged and does not fail the training."""
    try:
        with TemporaryDirectory() as name:
            folder = Path(name)
            collect(run.folder, folder)
            figures = {split.name: drawn(split) for split in read_splits(folder / FOLDER)}
            for split, found in figures.items():
                for figure in found:
                    if figure.svg:
                        (folder / FOLDER / split / f"{figure.name}.svg").write_bytes(figure.svg)
            run.file_folder(name)
        with TemporaryDirectory() as name:
            (Path(name) / REPORT).write_text(run_page(material(run.uri, run.run_id), figures, finishing=True))
            run.file_folder(name)
    except Exception as error:
        log.warning("run %s has no page: %s: %s; jobs/report.py %s makes it", run.run_id, type(error).__name__, error, run.run_id)
