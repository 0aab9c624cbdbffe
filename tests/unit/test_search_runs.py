"""What a search reads from MLflow: what trainings have reached, whoever began them, and which of them are still under way. No Ray."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient
from trainings import open_dataset, training

from pipelines import tracking
from pipelines.config import Config, parse
from pipelines.config.tuning import Tune
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, LockstepError, TrackingError
from pipelines.runtime.progress import Progress
from pipelines.tracking import search_run
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.run_heartbeat import HEARTBEAT
from pipelines.tracking.search_run import SearchRun, open_search, read_curve
from pipelines.tuning.driver import SearchState, _plan, choose_metric
from pipelines.tuning.placement import Answer, TrialTask
from pipelines.tuning.search import DONE, ForkPoint, TrialJob
from pipelines.tuning.search_result import best_value


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = training(tmp_path, rows=640)
    return config.model_copy(update={"tune": Tune(space={"train.lr": {"log": [1e-3, 1e-1]}})})


def begin(config: Config, version: Version, values: list[float | None], status: Any = "SCHEDULED", **tags: str) -> str:
    """A training whose metric was so after each epoch, of ten steps."""
    run = tracking.open_training(config, version, {}, tags)
    for epoch, value in enumerate(values, 1):
        numbers = {"validation/epoch": float(epoch), **({} if value is None else {"validation/auc": value})}
        for name, number in numbers.items():
            run.client.log_metric(run.run_id, name, number, step=10 * epoch)
    run.end(status)
    return run.run_id


def test_a_training_answers_as_far_as_it_came(config: Config) -> None:
    version = open_dataset(config)
    assert read_curve(config, version, "auc") is None
    run_id = begin(config, version, [0.7, None, 0.8])
    curve = read_curve(config, version, "auc")
    assert curve is not None
    assert (curve.run_id, curve.values, curve.is_trained, curve.parent) == (run_id, (0.7, None, 0.8), False, "")
    other = config.model_copy(update={"train": config.train.model_copy(update={"lr": 0.02})})
    assert read_curve(other, version, "auc") is None


def test_the_final_point_of_a_finished_training_is_no_epoch(config: Config) -> None:
    version = open_dataset(config)
    run_id = begin(config, version, [0.7, 0.9, 0.8], "FINISHED")
    MlflowClient(config.tracking.uri).log_metric(run_id, "validation/auc", 0.9, step=31)
    curve = read_curve(config, version, "auc")
    assert curve is not None and (curve.values, curve.is_trained) == ((0.7, 0.9, 0.8), True)


def test_of_several_trainings_the_one_that_came_furthest_answers(config: Config) -> None:
    version = open_dataset(config)
    finished = begin(config, version, [0.7, 0.8, 0.9], "FINISHED")
    begin(config, version, [0.71], "KILLED")
    curve = read_curve(config, version, "auc")
    assert curve is not None and curve.run_id == finished


def test_tags_of_a_beginning_are_not_those_of_one_who_goes_on(config: Config) -> None:
    version = open_dataset(config)
    run_id = begin(config, version, [0.7], "KILLED")
    run = tracking.open_training(config, version, {}, {PARENT: "a search"})
    assert run.run_id == run_id and PARENT not in run.client.get_run(run_id).data.tags
    run.end("FINISHED")
    new = tracking.open_training(config, version, {}, {PARENT: "a search"})
    assert new.client.get_run(new.run_id).data.tags[PARENT] == "a search"


def test_a_trial_that_another_machine_still_trains_ends_the_wait_with_its_name(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    version = open_dataset(config)
    search = open_search(config, version, {})
    run_id = begin(config, version, [0.7], "KILLED", **{PARENT: search.run_id})
    beat = json.dumps({"time": time.time(), "host": "elsewhere", "process": 7})
    search.client.set_tag(run_id, HEARTBEAT, beat)
    monkeypatch.setattr(search_run, "DEAD_SECONDS", 0.0)
    with pytest.raises(TrackingError, match=f"run {run_id}, a trial of this search, is still trained by process 7 on elsewhere.*; stop it"):
        search.wait_for_trials()
    search.client.set_tag(run_id, HEARTBEAT, "")  # stopped
    search.wait_for_trials()


def test_the_same_search_goes_on_in_its_run_and_another_one_does_not(config: Config) -> None:
    version = open_dataset(config)
    first = open_search(config, version, {})
    with pytest.raises(TrackingError, match="already training this search"):
        open_search_elsewhere(config, version, first)
    first.end("KILLED")
    resumed = open_search(config, version, {})
    assert (resumed.run_id, resumed.is_resumed) == (first.run_id, True)
    resumed.end("KILLED")
    more = config.model_copy(update={"tune": config.tune.model_copy(update={"trials": 40})})
    assert open_search(more, version, {}).run_id != first.run_id


def open_search_elsewhere(config: Config, version: Version, search: SearchRun) -> None:
    """The same command on another machine, as far as the heartbeat tells."""
    beat = json.dumps({"time": time.time(), "host": "elsewhere", "process": 7})
    search.client.set_tag(search.run_id, HEARTBEAT, beat)
    try:
        open_search(config, version, {})
    finally:
        search.client.set_tag(search.run_id, HEARTBEAT, "")


def test_trials_that_go_no_further_are_ended(config: Config) -> None:
    version = open_dataset(config)
    search = open_search(config, version, {})
    run_id = begin(config, version, [0.7], "SCHEDULED", **{PARENT: search.run_id})
    assert search.client.get_run(run_id).info.status == "SCHEDULED"
    search.end_trials({run_id})
    assert search.client.get_run(run_id).info.status == "SCHEDULED", "unless it has failed"
    search.end_trials(set())
    assert search.client.get_run(run_id).info.status == "KILLED"


def test_of_equal_trials_one_is_trained_and_answers_the_others(config: Config) -> None:
    """Although several trials begin at once, of which MLflow has none yet."""
    space: Any = {"train.lr": {"choice": [1e-3, 3e-3]}}
    config = config.model_copy(update={"tune": Tune(space=space, trials=8, parallel=4, scheduler="none", proposer="random")})  # type: ignore[arg-type]
    version = open_dataset(config)
    versions: Any = SimpleNamespace(get=lambda config: version, find=lambda config: version, is_making=False)
    run: Any = SimpleNamespace(run_id="search")
    search = SearchState(config, [], versions, run, "auc", _plan(config, "max"), Progress())
    under_way, trained = list[TrialTask](), list[float]()
    while (task := search._next_job_task()) is not DONE or under_way:
        if isinstance(task, TrialTask):
            under_way.append(task)
            trained.append(task.config["train"]["lr"])
            continue
        task = under_way.pop()
        begin(parse(task.config, "toy", recorded=True), version, [0.7, 0.8, 0.9], "FINISHED")
        search.take(task.key, Answer())
    assert sorted(trained) == [1e-3, 3e-3] and {job.trial for job in search.jobs} == set(range(1, 9))
    assert search.winner().values == (0.7, 0.8, 0.9)
    assert {search._trial_result(number).score for number in range(1, 9)} == {0.9}


def test_a_trial_that_was_interrupted_ends_the_search_and_is_not_the_worst(config: Config) -> None:
    """As the worst of trials, it would change all that are proposed after it; the same search goes on with it."""
    version = open_dataset(config)
    versions: Any = SimpleNamespace(get=lambda config: version, find=lambda config: version, is_making=False)
    run: Any = SimpleNamespace(run_id="search")
    search = SearchState(config, [], versions, run, "auc", _plan(config, "max"), Progress())
    task = search._next_job_task()
    assert isinstance(task, TrialTask)
    with pytest.raises(LockstepError, match="trial 1: its training was interrupted"):
        search.take(task.key, Answer("its training was interrupted, with exit code 143; the same search goes on with it", "SystemExit"))
    assert not search._scores


def test_the_full_grid_of_a_population_has_its_first_members_only(config: Config) -> None:
    """Others continue them, and train no epoch that these would not."""
    space: Any = {"train.lr": {"log": [2e-2, 1e-1]}}
    config = config.model_copy(update={"tune": Tune(space=space, trials=4, scheduler="pbt")})  # type: ignore[arg-type]
    version = open_dataset(config)
    versions: Any = SimpleNamespace(get=lambda config: version, find=lambda config: version, is_making=False)
    search = SearchState(config, [], versions, SimpleNamespace(run_id="search"), "auc", _plan(config, "max"), Progress())  # type: ignore[arg-type]
    rungs = [(number, {"train.lr": 0.02}, epochs) for epochs in (1, 2, 3) for number in range(1 + (epochs > 1), 5 + (epochs > 1))]
    search.jobs = [
        TrialJob(number, params, epochs, epochs - 1, ForkPoint(1, 1) if number > 4 else None) for number, params, epochs in rungs
    ]
    search._final = SimpleNamespace(winner=SimpleNamespace(number=2), model="", fresh=lambda: None, combination=lambda: None,
        alternatives=lambda: (), chosen=0)  # type: ignore[assignment]  # fmt: skip
    result = search.result("")
    assert len(result.trials) == 5 and (result.epochs, result.full_grid, result.saved_share) == (12, 12, 0.0)


def test_trials_are_compared_by_a_metric_that_there_is(config: Config, tmp_path: Path) -> None:
    version = open_dataset(config)
    assert choose_metric(config, version) == ("auc", "max")
    by_loss = config.model_copy(update={"tune": config.tune.model_copy(update={"metric": "loss"})})
    assert choose_metric(by_loss, version) == ("loss", "min")
    wrong = config.model_copy(update={"tune": config.tune.model_copy(update={"metric": "aucc"})})
    with pytest.raises(ConfigError, match=r"tune.metric is aucc, but the validation metrics are .*did you mean auc"):
        choose_metric(wrong, version)
    few = training(tmp_path / "few", rows=3)
    with pytest.raises(ConfigError, match=r"split validation of .* has no rows, by which trials are compared; give dataset.split one"):
        choose_metric(few, open_dataset(few))


@pytest.mark.parametrize(("values", "best"), [((0.5, None, 0.7), 0.7), ((None,), None), ((float("nan"), 0.2), 0.2), ((), None)])
def test_the_best_epoch_is_the_best_number(values: tuple[float | None, ...], best: float | None) -> None:
    assert best_value(values, "max") == best
