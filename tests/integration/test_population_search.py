"""Population based training through Ray Tune and MLflow, on a small version: forks, the winner from nothing, kills, and a second time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from trainings import open_dataset, training
from waiting import wait_until

from pipelines.config import Config, load
from pipelines.config.train.changes import CHANGES
from pipelines.config.tuning import Tune
from pipelines.launch.cluster import RayOutput
from pipelines.launch.training_run import Result, TrialPlace, train
from pipelines.report.command import report_page
from pipelines.tracking.search_files import TrialResult
from pipelines.tracking.search_run import FORK_EPOCH, FORKED_FROM, TRIAL
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.tuning import forks
from pipelines.tuning.driver import run_search
from pipelines.tuning.search_result import SearchResult
from pipelines.tuning.space import config_values, parse_trial

pytestmark = pytest.mark.usefixtures("ray_cluster")

JOBS = Path(__file__).parents[2] / "jobs"
SPACE: dict[str, Any] = {
    "train.lr": {"log": [1e-3, 9e-3]},  # without the config's own
    "train.weight_decay": {"log": [1e-3, 0.5]},
    "task.hidden": {"choice": [[8], [16, 16]]},
}
SETTINGS: dict[str, Any] = {"rows": 1_000, "epochs": 3, "strategy": "exact", "schedule": "one_cycle", "task": {"hidden": [16, 16]}}
TUNE: dict[str, Any] = {"space": SPACE, "trials": 4, "scheduler": {"kind": "pbt", "quantile": 0.5}, "parallel": 3, "final_seeds": 0}


def search_config(folder: Path) -> Config:
    """A population of four, half of which are replaced after the first and the second of three epochs."""
    return training(folder, **SETTINGS).model_copy(update={"tune": Tune(**TUNE)})


def write_config(config: Config, path: Path) -> Path:
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tune"})
    path.write_text(yaml.safe_dump({**values, "tune": TUNE}, sort_keys=False))
    return path


def train_elsewhere(config: Config, folder: Path) -> Result:
    """Train a config from nothing: in another folder, and where MLflow knows no other training."""
    updates = {
        "train": config.train.model_copy(update={"storage": str(folder)}),
        "tracking": config.tracking.model_copy(update={"experiment": folder.name}),
    }
    return train_here(config.model_copy(update=updates))


def train_here(config: Config) -> Result:
    """Train to the end, in this process."""
    return train(config, open_dataset(config), ray_output=RayOutput(), trial=TrialPlace(is_local=True))


def decisions(result: SearchResult) -> list[tuple[Any, ...]]:
    """All that a search has decided, and what its trials have reached."""
    return [(trial.number, trial.params, trial.values, trial.rung, trial.source, trial.source_epoch) for trial in result.trials]


def trial_runs(config: Config) -> dict[int, Any]:
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    runs = client.search_runs([experiment.experiment_id], f"tags.`{TRIAL}` LIKE '%'") if experiment else []
    return {int(run.data.tags[TRIAL]): run for run in runs}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("population")


def die_after_copies(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the driver die when so many forks have begun, and all of the last one is copied but the record of its checkpoint."""
    copy_points, calls = forks.copy_points, list[str]()

    def copy_and_die(run: Any, source: str, step: int) -> None:
        calls.append(source)
        copy_points(run, source, step)
        if len(calls) == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(forks, "copy_points", copy_and_die)


@pytest.fixture(scope="module")
def searched(home: Path) -> tuple[Config, SearchResult]:
    """A search that was killed at its second fork, and has gone on with the same command."""
    config = search_config(home)
    path = write_config(config, home / "toy.yaml")
    with pytest.MonkeyPatch.context() as monkeypatch:
        die_after_copies(monkeypatch, 2)
        with pytest.raises(KeyboardInterrupt):
            run_search(load(path), str(path))
    before = own_epochs(config)
    result = run_search(load(path), str(path))
    assert before + result.epochs_trained == 4 * 3, "each of the four trains three, and none is trained twice"
    return config, result


def own_epochs(config: Config) -> int:
    """Epochs that the trials have been trained for, without those that were copied."""
    runs = trial_runs(config).values()
    return sum(int(run.data.metrics.get("validation/epoch", 0)) - int(run.data.tags.get(FORK_EPOCH, 0)) for run in runs)


def last_fork(result: SearchResult) -> TrialResult:
    """A trial that continues one which continued another one, or else one of the last that continue any."""
    return max((trial for trial in result.trials if trial.source), key=lambda trial: (len(trial.params[CHANGES]), trial.number))


def test_worst_members_are_replaced_and_no_epoch_is_trained_twice(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    assert [trial.number for trial in result.trials] == list(range(1, 9)) and result.rungs == (1, 2, 3)
    forked = [trial for trial in result.trials if trial.source]
    assert [trial.source_epoch for trial in forked] == [1, 1, 2, 2]
    assert result.epochs == own_epochs(config) == 4 * 3 == result.full_grid, "so that nothing is saved"
    runs = trial_runs(config)
    assert len(runs) == 8
    for trial in forked:
        source, tags = result.trials[trial.source - 1], runs[trial.number].data.tags
        assert trial.values[: trial.source_epoch] == source.values[: trial.source_epoch]
        assert (tags[FORKED_FROM], tags[FORK_EPOCH]) == (source.run_id, str(trial.source_epoch))
        assert tags["mlflow.parentRunId"] == result.run_id and runs[trial.number].info.status in ("KILLED", "FINISHED")
        assert [change["after_epoch"] for change in trial.params[CHANGES]][-1] == trial.source_epoch
        assert next(Path(config.train.storage).glob(f"*{trial.run_id[:12]}/evaluation-validation.zip")).stat().st_size


def test_a_forked_trial_has_the_model_of_its_config_from_nothing(searched: tuple[Config, SearchResult], home: Path) -> None:
    config, result = searched
    trial = last_fork(result)
    trial_config = parse_trial(config_values(config), trial.params)
    finished = train_here(trial_config)
    assert finished.run_id == trial.run_id, "which goes on from where the search has left it"
    from_nothing = train_elsewhere(trial_config, home / "fork-from-nothing")
    assert finished.model_digest == from_nothing.model_digest
    folders = [next(Path(storage).glob(f"*{run[:12]}")) for storage, run in (
        (config.train.storage, finished.run_id), (home / "fork-from-nothing", from_nothing.run_id))]  # fmt: skip
    logs = [read_digest_log(RunDirectory(str(folder))) for folder in folders]
    assert logs[0].losses == logs[1].losses and len(logs[0].losses) == 3 * (1_000 // 64)
    client = MlflowClient(config.tracking.uri)
    rates = [
        {point.step: point.value for point in client.get_metric_history(run, "train/learning_rate")}
        for run in (finished.run_id, from_nothing.run_id)
    ]
    assert rates[0] == rates[1] and len(rates[0]) > 3, "and its curves"


def test_the_winner_s_file_trains_its_model_from_nothing(searched: tuple[Config, SearchResult], home: Path) -> None:
    config, result = searched
    winner = load(result.output)
    assert [change.model_dump(exclude_none=True) for change in winner.train.changes] == list(result.best.params.get(CHANGES, []))
    digest = MlflowClient(config.tracking.uri).get_run(result.best.run_id).data.tags["model.digest"]
    assert train_elsewhere(winner, home / "winner-from-nothing").model_digest == digest


def test_the_same_search_again_trains_nothing(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    second = run_search(config)
    assert (second.epochs_trained, decisions(second)) == (0, decisions(result)) and second.run_id != result.run_id
    assert all(trial.is_linked for trial in second.trials) and second.model == result.model


def test_the_files_and_the_page_keep_the_trace(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    search = MlflowClient(config.tracking.uri).get_run(result.run_id)
    rows = json.loads(Path(search.info.artifact_uri.removeprefix("file://"), "trials.json").read_text())
    for row, trial in zip(rows, result.trials, strict=True):
        assert (row["source"], row["source_epoch"], row["params"]) == (trial.source, trial.source_epoch, trial.params)
    page = report_page(config.tracking.uri, (result.run_id,))
    trial = last_fork(result)
    assert f"trial {trial.source} from epoch {trial.source_epoch}" in page and f"after epoch {trial.source_epoch} lr" in page
    assert "begins on its curve" in page


@pytest.mark.full
def test_a_trial_whose_source_is_gone_is_trained_from_the_start(
    searched: tuple[Config, SearchResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected = searched
    config, find_epoch, lost = search_config(tmp_path), forks.find_epoch, list[int]()

    def find_no_second(directory: RunDirectory, epoch: int) -> str | None:
        lost.append(epoch)
        return None if epoch == 2 and lost.count(2) == 1 else find_epoch(directory, epoch)

    monkeypatch.setattr(forks, "find_epoch", find_no_second)
    result = run_search(config)
    assert decisions(result) == decisions(expected), "as of the search that was killed"
    assert (lost.count(2), result.epochs, result.epochs_trained) == (2, 12, 14)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_killed_search_has_the_same_trials(searched: tuple[Config, SearchResult], tmp_path: Path) -> None:
    _, expected = searched
    config = search_config(tmp_path)
    words = [sys.executable, str(JOBS / "tune.py"), str(write_config(config, tmp_path / "search.yaml")), "--json"]
    environment = {**os.environ, "LOCKSTEP_HOME": str(tmp_path)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        wait_until(lambda: len(trial_runs(config)) > 4 or process.poll() is not None, "a fork", 480)
        process.kill()
    assert process.returncode == -9
    result = run_search(config)
    assert decisions(result) == decisions(expected) and result.epochs_trained < result.epochs
    assert len(trial_runs(config)) == 8, "no trial has begun twice"
