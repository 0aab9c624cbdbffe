"""The files of a search's run: a row for each trial, and everything else, for whoever draws its page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.tracking.history import CONFIG, download

TRIALS, SEARCH_FILE = "trials.json", "search.json"


@dataclass(frozen=True)
class TrialResult:
    """A trial of a search."""

    number: int
    params: dict[str, Any]
    """Values by the dotted names of settings."""
    run_id: str
    """Its training in MLflow; empty if it has failed before one began."""
    rung: int
    """The last rung that it was sent to, counted from 0."""
    epochs: int
    """Epochs that the search knows of it."""
    values: tuple[float | None, ...]
    """The metric after each of these epochs; None where it is not defined."""
    score: float | None
    """The best of them; None if the trial has failed."""
    is_linked: bool
    """Whether its training was begun by hand, or by another search."""
    error: str = ""
    source: int = 0
    """The trial that this one continues with other settings; 0 if it began by itself."""
    source_epoch: int = 0
    """Epochs that both have: until there, they are one training."""


@dataclass(frozen=True)
class SearchFiles:
    """The files of a search that has ended."""

    trials: tuple[TrialResult, ...]
    search: Mapping[str, Any]
    """The values of `tuning.search_result.SearchResult`, its decisions and the importance of settings."""
    config: Mapping[str, Any]


def read_search_files(uri: str, run_id: str) -> SearchFiles | None:
    """The files of a search's run; None if it has not ended. Raises TrackingError if MLflow cannot be reached."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        download(uri, run_id, folder, (TRIALS, SEARCH_FILE, CONFIG))
        if not ((folder / TRIALS).exists() and (folder / SEARCH_FILE).exists()):
            return None
        trials, search, config = (
            json.loads(file.read_bytes()) if (file := folder / base).exists() else {} for base in (TRIALS, SEARCH_FILE, CONFIG)
        )
    return SearchFiles(tuple(TrialResult(**{**row, "values": tuple(row["values"])}) for row in trials), search, config)


def lineage(trials: Sequence[TrialResult], number: int) -> list[TrialResult]:
    """The trials that a trial continues, one after another, the first one first and it itself last."""
    by_number = {trial.number: trial for trial in trials}
    line = [by_number[number]]
    while line[0].source:
        line.insert(0, by_number[line[0].source])
    return line
