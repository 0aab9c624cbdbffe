"""Data of a run's page: the run in MLflow with its files, and, where its directory can be read, what is newer there."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyarrow.fs import FileSelector

from pipelines.data.versions import storage
from pipelines.data.versions.checksummed_json import unseal_or_none
from pipelines.errors import LockstepError, TrackingError
from pipelines.report.evaluation import FOLDER, SplitEvaluation, add_raw_rows, read_splits, unpack
from pipelines.tracking.history import History, download, history
from pipelines.tracking.job_runs import BASELINE
from pipelines.tracking.run import KIND
from pipelines.tracking.training import FOLDER as RUN_FOLDER

log = logging.getLogger(__name__)

ATTEMPTS = "attempts.json"
INIT_FROM = "init_from.json"
"""Which of the weights that a training started from it has loaded, as `Fit.to_values` has them."""
_FILES = ("config.json", "manifest.json", FOLDER, "samples", ATTEMPTS, INIT_FROM)
_MOST_SAMPLES = 6


@dataclass(frozen=True)
class TrainingAttempt:
    """A group of workers that began to train."""

    seconds: float
    """Since 1970."""
    step: int
    """The first one that it trained, counted from 0."""
    workers: int
    ended: float | None = None
    """When it had saved and ended, seconds since 1970; None if it died, or still trains."""
    steps: int | None = None
    """Steps of the run that were trained when it ended."""


@dataclass(frozen=True)
class RunData:
    """A run, with what it left."""

    run: History
    config: Mapping[str, Any]
    """Empty if the run has none that can be read, as all that follows."""
    manifest: Mapping[str, Any]
    attempts: Sequence[TrainingAttempt]
    splits: Sequence[SplitEvaluation]
    parent: History | None
    """The run whose weights it began with, if MLflow still has it."""
    samples: Mapping[str, str]
    """Texts that the model wrote, by file: the first ones, and the last."""
    init_from: Mapping[str, Any] = field(default_factory=dict)
    """Which of the initial weights fit; empty for all those of a run, or for random ones."""

    @property
    def is_baseline(self) -> bool:
        return self.run.tags.get(KIND) == BASELINE

    @property
    def steps(self) -> int:
        """Steps that were trained: up to the last point of the curves or, where a group of workers ended in between, up to there."""
        points = [point.step for point in self.run.curves.get("train/loss", ())]
        return max([0, *points, *(attempt.steps or attempt.step for attempt in self.attempts)])


def read_run_data(uri: str, run_id: str) -> RunData:
    """Gather what a run left. Raises TrackingError if there is no such run, or if MLflow cannot be reached."""
    run = history(uri, run_id)
    with TemporaryDirectory() as name:
        folder = Path(name)
        download(uri, run_id, folder, _FILES)
        if run.status != "FINISHED" and (directory := run.tags.get(RUN_FOLDER)):
            collect(directory, folder)
        config, manifest = (_values(folder / name) for name in ("config.json", "manifest.json"))
        _add_raw_rows(folder / FOLDER, config, manifest)
        return RunData(
            run,
            config=config,
            manifest=manifest,
            attempts=[TrainingAttempt(**attempt) for attempt in _values(folder / ATTEMPTS).get("attempts", [])],
            splits=read_splits(folder / FOLDER),
            parent=_parent(uri, config),
            samples=_samples(folder / "samples"),
            init_from=_values(folder / INIT_FROM),
        )


def _add_raw_rows(folder: Path, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Add the most wrong rows from the version that the run has evaluated, if it can be read from here."""
    try:
        filesystem, path = storage.locate(config["dataset"]["path"])
        add_raw_rows(folder, filesystem, f"{path}/{manifest['version']}", manifest["attempt"])
    except (KeyError, OSError, LockstepError) as error:
        log.info("the dataset of the run cannot be read: %s", error)


def collect(directory: str, folder: Path) -> None:
    """Copy what workers left in the directory of a run into a folder, as MLflow has it.

    A directory that cannot be read, on another machine or removed, has nothing.
    """
    try:
        filesystem, path = storage.locate(directory)
        contents = {}
        for entry in filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
            if entry.base_name == ATTEMPTS or (entry.base_name.startswith(f"{FOLDER}-") and entry.extension == "zip"):
                contents[entry.base_name] = storage.read(filesystem, entry.path) or b""
    except (OSError, LockstepError) as error:
        log.warning("%s cannot be read, so the page has only what MLflow has: %s", directory, error)
        return
    if values := unseal_or_none(contents.pop(ATTEMPTS, b"")):
        (folder / ATTEMPTS).write_text(json.dumps({"attempts": values.get("attempts", [])}), encoding="utf-8")
    for name, content in contents.items():
        try:
            unpack(content, folder / FOLDER / name.removeprefix(f"{FOLDER}-").removesuffix(".zip"))
        except OSError as error:
            log.warning("%s/%s is left out of the page: %s", directory, name, error)


def _parent(uri: str, config: Mapping[str, Any]) -> History | None:
    origin = config.get("train", {}).get("init_from")
    origin = origin.get("run") if isinstance(origin, Mapping) else origin
    try:
        return history(uri, origin) if origin else None
    except TrackingError:  # it was deleted since
        return None


def _values(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, TypeError, ValueError, RecursionError):
        return {}


def _samples(folder: Path) -> dict[str, str]:
    files = sorted(folder.glob("*.txt"))
    chosen = files if len(files) <= _MOST_SAMPLES else [*files[: _MOST_SAMPLES // 2], *files[-_MOST_SAMPLES // 2 :]]
    return {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in chosen}
