"""Searches of settings through Ray Tune and MLflow, on a small version: killed and gone on with, extended, and with trainings by hand."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import ray
import yaml
from mlflow import MlflowClient
from trainings import open_dataset, training
from waiting import wait_until

from pipelines.config import Config, load
from pipelines.config.tuning import Scheduler, Tune
from pipelines.errors import LockstepError
from pipelines.launch.training_run import find_result, train
from pipelines.report.command import report_page
from pipelines.tracking.search_run import RUNG, TRIAL, read_curve
from pipelines.tracking.training import IDENTITY
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.tuning import trial_memory
from pipelines.tuning.driver import run_search
from pipelines.tuning.placement import trial_places
from pipelines.tuning.search_result import SearchResult
from pipelines.tuning.space import config_values, parse_trial

pytestmark = pytest.mark.usefixtures("ray_cluster")

JOBS = Path(__file__).parents[2] / "jobs"
SPACE: dict[str, Any] = {"train.lr": {"log": [1e-3, 1e-1]}, "task.hidden": {"choice": [[8], [16, 16]]}}
SETTINGS: dict[str, Any] = {"rows": 1_000, "epochs": 3, "strategy": "exact", "schedule": "one_cycle"}


def search_config(folder: Path, trials: int = 6, space: dict[str, Any] | None = None, **settings: Any) -> Config:
    """A search of trials of three epochs on a small version."""
    config = training(folder, **{**SETTINGS, **settings})
    return config.model_copy(update={"tune": Tune(space=space or SPACE, trials=trials, parallel=3, final_seeds=1)})


def list_runs(config: Config, condition: str = "") -> list[Any]:
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    assert experiment is not None, "the search has begun"
    return list(client.search_runs([experiment.experiment_id], condition, order_by=["attributes.start_time ASC"]))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tune")


@pytest.fixture(scope="module")
def searched(home: Path) -> tuple[Config, SearchResult]:
    config = search_config(home)
    path = home / "toy.yaml"
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tune"})
    tune_values = config.tune.model_dump(mode="json", by_alias=True, exclude_unset=True)
    path.write_text(yaml.safe_dump({**values, "tune": tune_values}, sort_keys=False))
    return config, run_search(load(path), str(path))


def test_a_search_becomes_one_run_with_a_run_for_each_trial(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    trials = list_runs(config, f"tags.`mlflow.parentRunId` = '{result.run_id}' AND tags.`{TRIAL}` LIKE '%'")
    assert sorted(int(run.data.tags[TRIAL]) for run in trials) == [1, 2, 3, 4, 5, 6]
    assert {run.data.tags[TRIAL]: run.info.status for run in trials if run.info.status != "KILLED"} == {str(result.winner): "FINISHED"}
    assert {int(run.data.tags[TRIAL]): int(run.data.tags[RUNG]) for run in trials} == {trial.number: trial.rung for trial in result.trials}
    (search,) = list_runs(config, f"attributes.run_id = '{result.run_id}'")
    assert (search.info.status, search.data.params["tune.trials"]) == ("FINISHED", "6")
    assert search.data.tags["best.trial"] == str(result.winner) and search.data.metrics["search/epochs"] == result.epochs
    assert result.epochs == result.epochs_trained < result.full_grid == 18
    assert [len(run.outputs.model_outputs) > 0 for run in trials if run.data.tags[TRIAL] != str(result.winner)] == [False] * 5
    folder = Path(search.info.artifact_uri.removeprefix("file://"))
    assert [row["number"] for row in json.loads((folder / "trials.json").read_text())] == [1, 2, 3, 4, 5, 6]


def test_no_trial_that_went_no_further_was_tested(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    tested = {run.info.run_id for run in list_runs(config) if "test/auc" in run.data.metrics}
    assert tested == {result.best.run_id, *result.fresh.run_ids}
    assert len(result.fresh.validation) == len(result.fresh.test) == 1 and result.fresh.optimism is not None


def test_the_winner_s_file_is_the_config_of_its_training(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    (best,) = list_runs(config, f"attributes.run_id = '{result.best.run_id}'")
    winner = load(result.output)
    assert best.data.tags[IDENTITY].startswith(winner.model_identity[:16])
    assert json.loads(Path(best.info.artifact_uri.removeprefix("file://"), "config.json").read_text())["tune"]["space"] == {}


def test_more_trials_train_none_of_the_first_anew(searched: tuple[Config, SearchResult]) -> None:
    config, result = searched
    before = {run.info.run_id: run.data.metrics["validation/epoch"] for run in list_runs(config) if TRIAL in run.data.tags}
    more = run_search(config.model_copy(update={"tune": config.tune.model_copy(update={"trials": 9})}))
    assert [trial.run_id for trial in more.trials[:6]] == [trial.run_id for trial in result.trials]
    assert [trial.params for trial in more.trials[:6]] == [trial.params for trial in result.trials]
    assert all(trial.is_linked for trial in more.trials[:6]) and not any(trial.is_linked for trial in more.trials[6:])
    further = sum(max(0, trial.epochs - int(before.get(trial.run_id, 0))) for trial in more.trials)
    assert more.epochs_trained == further < more.epochs, "only new trials, and those that go further now"


def test_an_extended_trial_has_the_losses_of_one_that_never_stopped(searched: tuple[Config, SearchResult], home: Path) -> None:
    config, result = searched
    trial = parse_trial(config_values(config), result.best.params)
    elsewhere = home / "elsewhere"
    at_once = trial.model_copy(
        update={
            "train": trial.train.model_copy(update={"storage": str(elsewhere), "workers": 2}),
            "tracking": trial.tracking.model_copy(update={"experiment": "at_once"}),
        }
    )
    uninterrupted = train(at_once, open_dataset(at_once))
    (best,) = list_runs(config, f"attributes.run_id = '{result.best.run_id}'")
    logs = [
        read_digest_log(RunDirectory(str(next(Path(folder).glob(f"*{run[:12]}")))))
        for folder, run in (
            (config.train.storage, best.info.run_id),
            (elsewhere, uninterrupted.run_id),
        )
    ]
    assert logs[0].losses == logs[1].losses and len(logs[0].losses) == 3 * (1_000 // 64)
    assert uninterrupted.model_digest == best.data.tags["model.digest"]


def test_a_training_by_hand_answers_a_trial_and_stays_where_it_is(searched: tuple[Config, SearchResult], tmp_path: Path) -> None:
    _, first = searched
    config = search_config(tmp_path, trials=1)
    by_hand = train(parse_trial(config_values(config), first.trials[0].params), open_dataset(config))
    result = run_search(config)
    assert (result.epochs_trained, result.trials[0].run_id, result.trials[0].is_linked) == (0, by_hand.run_id, True)
    (run,) = list_runs(config, f"attributes.run_id = '{by_hand.run_id}'")
    assert "mlflow.parentRunId" not in run.data.tags and result.model == by_hand.model


def test_a_search_ends_in_the_average_of_its_best_trials(tmp_path: Path) -> None:
    config = search_config(tmp_path, trials=4)
    settings = {"combine": 3, "scheduler": Scheduler(kind="none")}
    config = config.model_copy(update={"tune": config.tune.model_copy(update=settings)})
    result = run_search(config)
    combined = result.combined
    assert combined is not None and combined.validation is not None and combined.test is not None
    runs = {run.info.run_id: run for run in list_runs(config)}
    assert len(combined.of) == 4 and {runs[run_id].info.status for run_id in combined.of} == {"FINISHED"}
    assert {result.best.run_id, *result.fresh.run_ids} < set(combined.of), "the winner, with a fresh seed too, and two other trials"
    best_of_them = max(runs[run_id].data.metrics[f"validation/{result.metric}"] for run_id in combined.of)
    assert combined.validation >= best_of_them - 1e-6, "the selection begins with the best ones"
    run = runs[combined.run_id]
    assert run.data.tags["mlflow.parentRunId"] == result.run_id and set(run.data.tags["origin.runs"].split(", ")) == set(combined.of)
    second = run_search(config)
    assert (second.combined, second.epochs_trained) == (combined, 0)
    assert len(list_runs(config)) == len(runs) + 1, "the run of the search alone"
    assert "of the average of 4 models" in report_page(config.tracking.uri, (result.run_id,))


def test_a_model_of_another_kind_that_is_better_is_the_result_of_the_search(tmp_path: Path) -> None:
    config = search_config(tmp_path, trials=2, space={"train.lr": {"log": [1e-6, 2e-6]}}, lr=1e-6, task={"hidden": [4]})
    trees = {"task": {"kind": "trees", "leaves": 4}, "train": {"epochs": 2}}
    slow = {"task": "tabular", "train": {"epochs": 1, "lr": 1e-7, "global_batch": 64}}
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tune"})
    search = {"space": {"train.lr": {"log": [1e-6, 2e-6]}}, "trials": 2, "combine": 2, "final_seeds": 1, "alternatives": [slow, trees]}
    origin = tmp_path / "toy.yaml"
    origin.write_text(yaml.safe_dump({**values, "tune": search}, sort_keys=False))
    result = run_search(load(origin), str(origin))
    scores = [alternative.score for alternative in result.alternatives]
    assert [alternative.kind for alternative in result.alternatives] == ["tabular", "trees"]
    assert result.chosen == 2 and result.best_score == scores[1] and result.best.score is not None
    assert scores[1] is not None and scores[0] is not None and scores[1] > max(scores[0], result.best.score)
    best = load(tmp_path / "toy_tuned.yaml")
    assert (best.task.kind, best.train.epochs, best.train.shards) == ("trees", 2, config.train.shards)
    by_hand = find_result(best)
    assert by_hand is not None and by_hand.run_id == result.alternatives[1].run_id and by_hand.model == result.model
    assert result.combined is not None and {result.best.run_id, result.alternatives[1].run_id, *result.fresh.run_ids} <= {
        *result.combined.of
    }
    second = run_search(load(origin), str(origin))
    assert (second.alternatives, second.fresh, second.combined) == (result.alternatives, result.fresh, result.combined)
    page = report_page(config.tracking.uri, (result.run_id,))
    assert "alternative 2, trees" in page and "better than the winner, and the result" in page


def test_the_config_as_it_stands_is_the_first_trial_and_the_winner_is_not_worse(tmp_path: Path) -> None:
    space: dict[str, Any] = {"train.lr": {"log": [1e-3, 1e-1]}, "task.hidden": {"choice": [[8], [32, 32]]}}
    config = search_config(tmp_path, trials=4, space=space)
    by_hand = train(config, open_dataset(config))
    result = run_search(config)
    first = result.trials[0]
    assert (first.run_id, first.is_linked, first.params) == (by_hand.run_id, True, {"train.lr": 0.01, "task.hidden": [32, 32]})
    assert first.epochs == 3 and first.score is not None and result.best.score is not None and result.best.score >= first.score
    (search,) = list_runs(config, f"attributes.run_id = '{result.run_id}'")
    page = Path(search.info.artifact_uri.removeprefix("file://"), "report.html").read_text()
    assert "validation auc of the config, trial 1" in page and page == report_page(config.tracking.uri, (result.run_id,))


def test_trials_that_memory_does_not_hold_together_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = search_config(tmp_path, trials=3)
    version = open_dataset(config)
    memory = max(node["Resources"]["memory"] for node in ray.nodes() if node["Alive"])
    assert trial_places(config, version).resources["memory"] == pytest.approx(trial_memory.PROCESS_BYTES, rel=0.1)
    monkeypatch.setattr(trial_memory, "PROCESS_BYTES", int(0.6 * memory))
    assert trial_places(config, version).most == 1
    counts, is_over = [0], Event()

    def count_running() -> None:
        while not is_over.wait(0.05):
            if count_trials(config):
                counts.append(len(list_runs(config, f"attributes.status = 'RUNNING' AND tags.`{TRIAL}` LIKE '%'")))

    thread = Thread(target=count_running)
    thread.start()
    try:
        assert run_search(config).best.epochs == 3
    finally:
        is_over.set()
        thread.join()
    assert max(counts) == 1
    monkeypatch.setattr(trial_memory, "PROCESS_BYTES", int(2 * memory))
    places = trial_places(config, version)
    assert (places.most, places.resources["memory"]) == (1, int(memory)), "which is tried, and does not wait forever"


def test_a_failed_trial_is_the_worst_and_its_error_is_kept(home: Path, tmp_path: Path) -> None:
    config = search_config(tmp_path, trials=3, space={"train.lr": {"choice": [0.01, 1e30, 0.02]}}, optimizer="sgd", schedule="constant")
    result = run_search(config.model_copy(update={"tune": config.tune.model_copy(update={"proposer": "grid"})}))
    failed = result.trials[1]
    assert (failed.score, failed.rung) == (None, 0) and "train.lr" in failed.error and result.winner != 2
    second = run_search(config.model_copy(update={"tune": config.tune.model_copy(update={"proposer": "grid"})}))
    assert (second.epochs_trained, second.trials[1].error) == (0, failed.error), "what must fail again is not tried again"
    all_fail = config.model_copy(update={"tune": Tune(space={"train.lr": {"choice": [1e30, 2e30]}}, trials=2, proposer="grid")})
    with pytest.raises(LockstepError, match="all 2 trials of the search have failed; the first: ") as error:
        run_search(all_fail)
    assert error.value.exit_code == 1


def test_a_metric_that_the_task_does_not_have_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    config = search_config(tmp_path)
    with pytest.raises(LockstepError, match=r"tune.metric is aucc, but the validation metrics are .*did you mean auc"):
        run_search(config.model_copy(update={"tune": config.tune.model_copy(update={"metric": "aucc"})}))
    assert MlflowClient(config.tracking.uri).get_experiment_by_name(config.experiment) is None


@pytest.mark.full
def test_trials_on_two_workers_are_those_on_one(searched: tuple[Config, SearchResult], tmp_path: Path) -> None:
    _, result = searched
    config = search_config(tmp_path, trials=2, workers=2)
    on_two = run_search(config.model_copy(update={"tune": config.tune.model_copy(update={"final_seeds": 0})}))
    for trial, trial_on_one in zip(on_two.trials, result.trials, strict=False):
        epochs = min(trial.epochs, trial_on_one.epochs)
        assert (trial.params, trial.values[:epochs]) == (trial_on_one.params, trial_on_one.values[:epochs])
    assert sorted(trial.epochs for trial in on_two.trials) == [1, 3]


def command(config: Config, folder: Path) -> list[str]:
    path = folder / "search.yaml"
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tune"})
    path.write_text(yaml.safe_dump({**values, "tune": config.tune.model_dump(mode="json", by_alias=True, exclude_unset=True)}))
    return [sys.executable, str(JOBS / "tune.py"), str(path), "--json"]


def count_trials(config: Config) -> int:
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    condition = f"tags.`{RUNG}` LIKE '%'"
    return len(client.search_runs([experiment.experiment_id], condition)) if experiment else 0


def last_result(output: str) -> dict[str, Any]:
    events = [json.loads(line) for line in output.splitlines()]
    return next(event for event in events if event["event"] == "result")


@pytest.mark.timeout(1800)  # two commands, each of which starts a Ray
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_a_killed_search_goes_on_with_the_same_command(number: int, searched: tuple[Config, SearchResult], tmp_path: Path) -> None:
    _, expected = searched
    config = search_config(tmp_path)
    words, environment = command(config, tmp_path), {**os.environ, "LOCKSTEP_HOME": str(tmp_path)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        wait_until(lambda: count_trials(config) >= 3 or process.poll() is not None, "three trials", 480)
        os.killpg(process.pid, number) if number == signal.SIGTERM else process.kill()
        process.communicate(timeout=300)
    assert process.returncode == (128 + number if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM:
        assert {run.info.status for run in list_runs(config)} <= {"KILLED", "SCHEDULED", "FINISHED"}, "and each status is true"
    second = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=True)
    result = last_result(second.stdout)
    assert (result["winner"], result["params"], result["score"]) == (expected.winner, expected.best.params, expected.best.score)
    assert result["epochs"] == expected.epochs and result["epochs_trained"] <= expected.epochs - 3
    assert len([run for run in list_runs(config) if TRIAL in run.data.tags]) == 6, "no trial has begun twice"


@pytest.mark.full
def test_trees_are_searched_too(tmp_path: Path) -> None:
    space: dict[str, Any] = {"task.leaves": {"int": [2, 31]}, "task.learning_rate": {"log": [0.02, 0.3]}}
    config = training(tmp_path, rows=1_000, task={"kind": "trees"}, epochs=3, strategy={"kind": "boosting", "rounds_per_epoch": 5})
    result = run_search(config.model_copy(update={"tune": Tune(space=space, trials=4, final_seeds=0)}))
    assert result.best.epochs == 3 and result.best.score is not None and 0.5 < result.best.score <= 1
    assert read_curve(parse_trial(config_values(config), result.best.params), open_dataset(config), "auc") is not None
