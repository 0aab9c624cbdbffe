"""A search decides the same jobs whatever is done first; its settings are checked before anything starts. No Ray, and no MLflow."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from searches import run_decisions

from pipelines.config import Config, home, load, parse
from pipelines.config.load import with_absolute_paths
from pipelines.config.reading import read_yaml_file
from pipelines.config.train.base import PLACEMENT
from pipelines.config.tuning import Dimension, Tune, budget_seconds
from pipelines.errors import ConfigError
from pipelines.tuning import combination
from pipelines.tuning.combination import best_trials, check_combination
from pipelines.tuning.driver import place_trials
from pipelines.tuning.proposals import proposer
from pipelines.tuning.search import (
    DONE,
    WAIT,
    SearchPlan,
    TrialJob,
    TrialScore,
    best_trial,
    job_after_budget,
    next_job,
    rank,
    rung_epochs,
    total_epochs,
)
from pipelines.tuning.search_result import SearchResult, TrialResult, describe_first, describe_search, fresh_seeds, rank_trials
from pipelines.tuning.space import check_search, config_params, config_values, parse_trial
from pipelines.tuning.winner_file import NewSettings, find_changes, replace_settings, winner_path, write_winner

CONF = Path(__file__).parents[2] / "conf"
SPACE: dict[str, Any] = {
    "train.lr": {"log": [1e-4, 1e-1]},
    "task.dropout": {"uniform": [0, 0.6]},
    "task.hidden": {"choice": [[64], [256, 128]]},
    "task.layers": {"int": [1, 4]},
}
SETTINGS = Tune(space=SPACE)
PLAN = SearchPlan(trials=30, rungs=(1, 3, 8))
Quality = Callable[[TrialJob], float | None]


def quality(job: TrialJob) -> float:
    """A score that depends on the parameters, and grows with epochs."""
    distance = (math.log10(job.params["train.lr"]) + 2.5) ** 2 + 4 * (job.params["task.dropout"] - 0.3) ** 2
    return 0.9 - 0.02 * distance - 0.1 / (job.epochs + job.params["task.layers"])


def drive(
    plan: SearchPlan = PLAN, settings: Tune = SETTINGS, order: int = 0, slots: int = 4, score: Quality = quality
) -> tuple[list[TrialJob], dict[int, TrialScore]]:
    return run_decisions(plan, settings, lambda job: TrialScore(score(job)), order, slots)


ALONE = drive(slots=1)


@pytest.mark.parametrize("slots", [1, 2, 3, 9])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_jobs_do_not_depend_on_what_is_done_first(slots: int, order: int) -> None:
    assert drive(order=order, slots=slots) == ALONE


def test_the_order_of_settings_in_a_file_decides_nothing() -> None:
    assert drive(settings=Tune(space=dict(reversed(SPACE.items())))) == ALONE


def test_no_more_trials_are_under_way_than_the_setting_says() -> None:
    propose = proposer(SETTINGS, PLAN)
    jobs: list[TrialJob] = []
    while isinstance(job := next_job(PLAN, propose, jobs, {}), TrialJob):
        jobs.append(job)
    assert (len(jobs), job) == (PLAN.parallel, WAIT)


@pytest.mark.parametrize("proposing", ["tpe", "random"])
def test_more_trials_begin_with_the_same_ones(proposing: str) -> None:
    settings = Tune(space=SPACE, proposer=proposing)
    fewer, _ = drive(settings=settings)
    more, _ = drive(SearchPlan(trials=40, rungs=PLAN.rungs), settings, order=5)
    first, second = ({job.trial: job.params for job in jobs} for jobs in (fewer, more))
    assert len(second) == 40
    assert {number: second[number] for number in first} == first
    begun_last = next(place for place, job in enumerate(fewer) if job.trial == 30)
    assert more[: begun_last + 1] == fewer[: begun_last + 1], "and go on in the same order until there are no more of the fewer"


def test_every_trial_is_proposed_once_and_goes_through_the_rungs_in_turn() -> None:
    jobs, results = ALONE
    assert [job.trial for job in jobs if job.rung == 0] == list(range(1, 31))
    for number in range(1, 31):
        trial_jobs = [job for job in jobs if job.trial == number]
        assert [job.rung for job in trial_jobs] == list(range(len(trial_jobs)))
        assert [job.epochs for job in trial_jobs] == list(PLAN.rungs[: len(trial_jobs)])
        assert len({repr(job.params) for job in trial_jobs}) == 1
    assert results.keys() == set(range(len(jobs)))


def test_asha_saves_more_than_half_of_the_epochs_and_one_trial_comes_to_the_end() -> None:
    jobs, results = ALONE
    assert total_epochs(jobs) < 0.4 * 30 * 8
    best = best_trial(PLAN, jobs, results)
    assert best is not None and best.rungs == 3
    full = [quality(TrialJob(job.trial, job.params, 8, 2)) for job in jobs if job.rung == 0]
    assert (best.values[-1] or 0.0) >= sorted(full)[-3], "and it is among the best three of all"


def test_better_and_better_trials_do_not_all_go_on() -> None:
    jobs, results = drive(score=lambda job: 0.5 + 0.01 * job.trial)
    assert total_epochs(jobs) <= 0.45 * 30 * 8, "the worst case, in which ASHA would train almost the full grid"
    assert best_trial(PLAN, jobs, results).number == 30  # type: ignore[union-attr]
    begun_last = next(place for place, job in enumerate(jobs) if job.trial == 30)
    assert sum(job.rung == 1 for job in jobs[:begun_last]) <= 29 // 3, "one in three, while others begin"


def test_results_that_come_early_wait_for_their_turn() -> None:
    propose = proposer(SETTINGS, PLAN)
    jobs = ALONE[0][:4]
    late = {1: TrialScore(0.5), 2: TrialScore(0.6), 3: TrialScore(0.7)}
    assert next_job(PLAN, propose, jobs, late) is WAIT
    assert next_job(PLAN, propose, jobs, {0: TrialScore(0.4), **late}) == next_job(PLAN, propose, jobs, {0: TrialScore(0.4)})


def test_of_equal_trials_the_first_goes_on() -> None:
    jobs, results = drive(SearchPlan(trials=9, rungs=(1, 3, 9), parallel=1), score=lambda job: 0.5)
    assert [job.trial for job in jobs if job.rung == 1] == [1, 2, 3]
    assert [job.trial for job in jobs if job.rung == 2] == [1]
    assert best_trial(PLAN, jobs, results).number == 1  # type: ignore[union-attr]


def test_scores_are_compared_with_four_digits() -> None:
    assert rank(0.92961, "max") == rank(0.92963, "max") < rank(0.92952, "max")
    assert rank(123_440.0, "min") == rank(123_390.0, "min") < rank(123_460.0, "min")
    assert rank(None, "max") == rank(math.nan, "min") == math.inf > rank(-1e9, "max")

    def nearly(job: TrialJob) -> float:
        return quality(job) * (1 + 1e-7)

    assert drive(score=nearly)[0] == ALONE[0], "rounding of sums over workers decides nothing"


def test_lower_may_be_better() -> None:
    low = SearchPlan(trials=30, rungs=PLAN.rungs, direction="min")
    assert drive(low, score=lambda job: -quality(job))[0] == ALONE[0]


def test_a_failed_trial_counts_as_the_worst() -> None:
    def some(job: TrialJob) -> float | None:
        return None if job.trial % 3 == 0 else quality(job)

    jobs, results = drive(score=some)
    assert all(job.trial % 3 for job in jobs if job.rung)
    assert best_trial(PLAN, jobs, results).number % 3  # type: ignore[union-attr]
    jobs, results = drive(score=lambda job: None)
    assert (Counter(job.rung for job in jobs), best_trial(PLAN, jobs, results)) == ({0: 30}, None)


def test_the_next_best_goes_on_where_the_best_fails_later() -> None:
    plan = SearchPlan(trials=2, rungs=(1, 3, 8))
    jobs, results = drive(plan, score=lambda job: None if job.trial == 1 and job.rung else 0.9 - 0.1 * job.trial)
    assert [(job.trial, job.epochs) for job in jobs] == [(1, 1), (2, 1), (1, 3), (2, 3), (2, 8)]
    assert best_trial(plan, jobs, results).number == 2  # type: ignore[union-attr]


def test_a_budget_of_epochs_ends_the_search_at_the_same_job() -> None:
    plan = SearchPlan(trials=30, rungs=PLAN.rungs, budget_epochs=25)
    jobs, _ = drive(plan)
    assert jobs == ALONE[0][: len(jobs)] and 8 <= total_epochs(jobs) <= 25 < total_epochs(ALONE[0][: len(jobs) + 1])
    assert drive(plan, order=7, slots=2)[0] == jobs


def test_without_a_scheduler_each_trial_is_trained_to_the_end() -> None:
    jobs, _ = drive(SearchPlan(trials=5, rungs=(8,)))
    assert [(job.trial, job.epochs) for job in jobs] == [(number, 8) for number in range(1, 6)]


def test_a_grid_goes_through_all_combinations_and_ends() -> None:
    space: dict[str, Any] = {"task.hidden": {"choice": [[8], [16]]}, "task.layers": {"int": [1, 3]}}
    settings = Tune(space=space, proposer="grid")
    jobs, _ = drive(SearchPlan(trials=30, rungs=(1,)), settings, score=lambda job: 0.5)
    assert [tuple(job.params.values()) for job in jobs] == [(hidden, layers) for hidden in ([8], [16]) for layers in (1, 2, 3)]


def test_proposals_are_within_their_ranges_and_differ_by_seed() -> None:
    for seed in (0, 1):
        jobs, _ = drive(settings=Tune(space=SPACE, seed=seed))
        for params in (job.params for job in jobs):
            assert 1e-4 <= params["train.lr"] <= 0.1 and 0 <= params["task.dropout"] <= 0.6
            assert params["task.hidden"] in ([64], [256, 128]) and params["task.layers"] in (1, 2, 3, 4)
            assert params["train.lr"] == float(f"{params['train.lr']:.4g}"), "as people write it"
        assert (jobs == ALONE[0]) == (seed == 0)


def test_tpe_learns_and_random_does_not() -> None:
    late = {kind: [job for job in drive(settings=Tune(space=SPACE, proposer=kind))[0] if job.trial > 15] for kind in ("tpe", "random")}
    means = {kind: sum(quality(TrialJob(1, job.params, 8, 2)) for job in jobs) / len(jobs) for kind, jobs in late.items()}
    assert means["tpe"] > means["random"]


OWN: dict[str, Any] = {"train.lr": 0.00123456, "task.dropout": 0.1, "task.hidden": [64], "task.layers": 2}
WITH_OWN = replace(PLAN, first=OWN)


@pytest.mark.parametrize("proposing", ["tpe", "random"])
def test_the_config_as_it_stands_is_the_first_trial_and_is_trained_to_the_end(proposing: str) -> None:
    settings = Tune(space=SPACE, proposer=proposing)
    poor = lambda job: 0.1 if job.trial == 1 else quality(job)  # noqa: E731
    jobs, results = drive(WITH_OWN, settings, score=poor)
    assert (jobs[0].trial, jobs[0].params) == (1, OWN)
    assert [job.epochs for job in jobs if job.trial == 1] == list(PLAN.rungs), "although it is the worst"
    assert drive(WITH_OWN, settings, order=3, slots=2, score=poor)[0] == jobs
    best = best_trial(WITH_OWN, jobs, results)
    assert best is not None and best.number != 1 and best.rungs == 3
    assert total_epochs(jobs) <= 0.45 * 30 * 8, "as without it"
    assert {job.trial: job.params for job in jobs}[2] == {job.trial: job.params for job in drive(settings=settings)[0]}[2]


@pytest.mark.parametrize("trials", [1, 2, 6, 30])
@pytest.mark.parametrize("gain", [-0.02, 0.0, 0.02])
@pytest.mark.parametrize("late", [False, True])
def test_the_winner_is_never_worse_than_the_config_as_it_stands(trials: int, gain: float, late: bool) -> None:
    """Also where that would have been stopped early, since it becomes good late."""

    def score(job: TrialJob) -> float:
        if job.trial == 1:
            return 0.5 if late and job.rung < 2 else 0.9
        return 0.9 + gain * (job.rung + 1) / 3

    jobs, results = drive(replace(WITH_OWN, trials=trials), score=score)
    best = best_trial(PLAN, jobs, results)
    assert best is not None and best.values[-1] is not None and best.values[-1] >= 0.9 and best.rungs == 3
    assert trials == 1 or (best.number != 1) == (gain > 0)


def test_few_trials_are_not_won_by_the_config_because_it_alone_came_to_the_end() -> None:
    jobs, results = drive(replace(WITH_OWN, trials=4), score=lambda job: 0.1 * job.trial)
    assert best_trial(PLAN, jobs, results).number == 4  # type: ignore[union-attr]
    assert [job.epochs for job in jobs if job.trial == 4] == list(PLAN.rungs)


@pytest.mark.parametrize("budget_epochs", [12, 20, 40])
def test_a_search_whose_budget_is_over_is_not_won_by_the_config_because_it_alone_came_to_the_end(budget_epochs: int) -> None:
    plan = replace(WITH_OWN, budget_epochs=budget_epochs)
    poor = lambda job: 0.1 if job.trial == 1 else quality(job)  # noqa: E731
    jobs, results = drive(plan, score=poor)
    best = best_trial(plan, jobs, results)
    assert best is not None and best.number != 1 and best.rungs == len(plan.rungs)
    assert drive(plan, order=3, slots=2, score=poor)[0] == jobs
    before = [job for job in jobs if job.trial != best.number or job.epochs < PLAN.rungs[-1]]
    assert total_epochs(before) <= budget_epochs, "the best trial alone goes on after the budget"


def test_nothing_follows_a_budget_where_the_config_is_the_best_or_there_is_none() -> None:
    good = lambda job: 1.0 if job.trial == 1 else quality(job)  # noqa: E731
    jobs, results = drive(replace(WITH_OWN, budget_epochs=20), score=good)
    assert best_trial(WITH_OWN, jobs, results).number == 1 and total_epochs(jobs) <= 20  # type: ignore[union-attr]
    assert job_after_budget(WITH_OWN, jobs, results) is DONE and job_after_budget(PLAN, jobs, results) is DONE
    assert job_after_budget(WITH_OWN, jobs, {}) is WAIT


def test_a_config_that_fails_goes_no_further() -> None:
    jobs, results = drive(WITH_OWN, score=lambda job: None if job.trial == 1 else quality(job))
    assert [job.rung for job in jobs if job.trial == 1] == [0] and best_trial(PLAN, jobs, results).rungs == 3  # type: ignore[union-attr]


def test_more_trials_begin_with_the_same_ones_also_after_the_config() -> None:
    fewer, more = drive(WITH_OWN)[0], drive(replace(WITH_OWN, trials=40))[0]
    begun_last = next(place for place, job in enumerate(fewer) if job.trial == 30)
    assert more[: begun_last + 1] == fewer[: begun_last + 1]


def test_a_grid_begins_with_the_config_and_leaves_nothing_out() -> None:
    space: dict[str, Any] = {"task.hidden": {"choice": [[8], [16]]}, "task.layers": {"int": [1, 2]}}
    plan = SearchPlan(trials=30, rungs=(1,), first={"task.hidden": [16], "task.layers": 1})
    jobs, _ = drive(plan, Tune(space=space, proposer="grid"), score=lambda job: 0.5)
    assert [tuple(job.params.values()) for job in jobs] == [([16], 1), ([8], 1), ([8], 2), ([16], 2)]


@pytest.mark.parametrize(
    ("space", "params"),
    [
        ({"train.lr": {"log": [1e-4, 1]}, "task.hidden": {"choice": [[8], [256, 256]]}}, {"train.lr": 0.002, "task.hidden": [256, 256]}),
        ({"train.lr": {"log": [0.01, 1]}}, None),
        ({"task.hidden": {"choice": [[8], [16]]}}, None),
        ({"task.number_embedding": {"choice": ["none", "piecewise"]}}, {"task.number_embedding": "piecewise"}),
        ({"task.members": {"int": [1, 8]}}, {"task.members": 1}),
        ({"train.clip_norm": {"uniform": [0.1, 1]}}, None),
        ({"train.lr": {"log": [1e-4, 1]}, "train.clip_norm": {"choice": [0.1, 1]}}, None),
        ({"task.batch_norm": {"choice": [True, False]}}, {"task.batch_norm": False}),
        (
            {"dataset.features.age": {"choice": ["minmax", "normal_quantile"]}, "task.use.age": {"choice": [True, False]}},
            {"dataset.features.age": "normal_quantile", "task.use.age": True},
        ),
        ({"dataset.features.capital_gain_values.min_count": {"choice": [2, 5]}}, {"dataset.features.capital_gain_values.min_count": 5}),
        ({"dataset.features.age.encoder": {"choice": ["minmax", "robust"]}}, None),
    ],
)
def test_the_config_is_a_trial_where_all_of_it_lies_in_the_space(space: dict[str, Any], params: dict[str, Any] | None) -> None:
    config = load(CONF / "adult.yaml", {"tune": {"space": space}, "task.number_embedding": "piecewise", "train.lr": 0.002})
    check_search(config)
    assert config_params(config) == params
    if params is not None:
        trial = parse_trial(config_values(config), params)
        assert (trial.model_identity, trial.data_identity) == (config.model_identity, config.data_identity)


@pytest.mark.parametrize(
    ("epochs", "least", "reduction", "rungs"),
    [(8, 1, 3, (1, 3, 8)), (9, 1, 3, (1, 3, 9)), (1, 1, 3, (1,)), (20, 2, 4, (2, 8, 20)), (3, 5, 2, (3,))],
)
def test_rungs_end_with_the_whole_training(epochs: int, least: int, reduction: int, rungs: tuple[int, ...]) -> None:
    assert rung_epochs(epochs, least, reduction) == rungs


LR: dict[str, Any] = {"train.lr": {"log": [1e-3, 1e-1]}}


@pytest.mark.parametrize(
    ("values", "fault", "remedy"),
    [
        (
            {"space": {"train.lr": {"log": [0, 0.1]}}},
            "only numbers above 0 have a logarithm",
            {"space": {"train.lr": {"uniform": [0, 0.1]}}},
        ),
        (
            {"space": {"train.lr": {"uniform": [0.2, 0.1]}}},
            "write the smaller number first",
            {"space": {"train.lr": {"uniform": [0.1, 0.2]}}},
        ),
        ({"space": {"train.lr": {"choice": []}}}, "choice is empty; list the values", {"space": {"train.lr": {"choice": [0.1]}}}),
        ({"space": {"train.lr": {"choice": [0.1, 0.1]}}}, "has a value twice", {"space": {"train.lr": {"choice": [0.1, 0.2]}}}),
        (
            {"space": {"train.lr": {"log": [0.1, 1], "int": [1, 2]}}},
            "has log and int; give it one of",
            {"space": {"train.lr": {"int": [1, 2]}}},
        ),
        ({"space": {"train.lr": {}}}, "has no kind of range; give it one of", {"space": LR}),
        ({"space": {"train.lr": {"logarithm": [0.1, 1]}}}, "tune.space.train.lr.logarithm: no such setting", {"space": LR}),
        ({"budget": "ten"}, "tune.budget: must be a time such as 90s, 10m or 2h", {"budget": "10m"}),
        ({"budget": "0m"}, "is 0m, in which no trial can be trained; give it at least 1s", {"budget": "1s"}),
        ({"budget": "0.5s"}, "is 0.5s, in which no trial can be trained; give it at least 1s", {"budget": "1s"}),
        ({"budget": 0}, "tune.budget: must be", {"budget": 1}),
        ({"trials": 0}, "tune.trials: must be greater than 0", {"trials": 1}),
        ({"scheduler": "hyperband"}, "tune.scheduler: must be one of asha, none", {"scheduler": "none"}),
        ({"scheduler": {"kind": "none", "reduction": 4}}, "tune.scheduler.reduction: has no effect", {"scheduler": {"reduction": 4}}),
    ],
)
def test_a_wrong_section_is_one_error_whose_remedy_works(values: dict[str, Any], fault: str, remedy: dict[str, Any]) -> None:
    raw = read_yaml_file(CONF / "adult.yaml")
    with pytest.raises(ConfigError) as error:
        parse({**raw, "tune": values}, "adult")
    assert fault in str(error.value).replace("'", "") and len(str(error.value).splitlines()) == 1
    parse({**raw, "tune": remedy}, "adult")


@pytest.mark.parametrize(
    ("space", "fault", "remedy"),
    [
        ({}, "tune.space is empty; name settings and their values", {"space": LR}),
        ({"train.lrr": {"log": [0.1, 1]}}, "tune.space: train.lrr: no such setting; did you mean lr?", {"space": LR}),
        (
            {"task.hiden": {"choice": [[8]]}},
            "task.hiden: no such setting; did you mean hidden?",
            {"space": {"task.hidden": {"choice": [[8]]}}},
        ),
        ({"task.dropout": {"uniform": [0, 2]}}, "must be less than 1 (got 2.0)", {"space": {"task.dropout": {"uniform": [0, 0.9]}}}),
        ({"task.hidden": {"choice": [[8], ["wide"]]}}, "must be a whole number (got wide)", {"space": {"task.hidden": {"choice": [[8]]}}}),
        (
            {"train.global_batch": {"log": [16, 256]}},
            "train.global_batch: must be a whole number",
            {"space": {"train.global_batch": {"choice": [16, 256]}}},
        ),
        ({"train.global_batch": {"choice": [100]}}, "it must be a multiple of 8", {"space": {"train.global_batch": {"choice": [96]}}}),
        (
            {"train.momentum": {"uniform": [0.1, 0.5]}},
            "tune.space: train.momentum: has no effect while train.optimizer is adamw",
            {"space": {"train.momentum": {"uniform": [0.1, 0.5]}}, "train.optimizer": "sgd"},
        ),
        ({"train.workers": {"int": [1, 2]}}, "train.workers decides where a training runs, and not its model; remove it", {"space": LR}),
        ({"train.epochs": {"int": [1, 2]}}, "set train.epochs itself", {"space": LR, "train.epochs": 2}),
        ({"train.max_steps": {"int": [1, 2]}}, "set train.max_steps itself", {"space": LR, "train.max_steps": 2}),
        ({"train.monitor": {"choice": ["loss"]}}, "set tune.metric", {"space": LR, "tune.metric": "loss"}),
        ({"train.seed": {"int": [1, 2]}}, "train.seed would choose luck", {"space": LR, "tune.final_seeds": 2}),
        ({"dataset.path": {"choice": ["a", "b"]}}, "dataset.path decides the rows on which trials are compared", {"space": LR}),
        ({"dataset.split.train": {"choice": [0.5, 0.6]}}, "and of dataset only features may vary; remove it", {"space": LR}),
        ({"source.query": {"choice": ["SELECT 1", "SELECT 2"]}}, "source.query decides the rows", {"space": LR}),
        (
            {"dataset.features.agee": {"choice": ["minmax", "robust"]}},
            "is of no feature of the dataset, which has age, race and 14 more; did you mean age?",
            {"space": {"dataset.features.age": {"choice": ["minmax", "robust"]}}},
        ),
        (
            {"dataset.features.income": {"choice": ["minmax", "robust"]}},
            "add income to dataset.features",
            {"space": {"dataset.features.income": {"choice": ["minmax", "robust"]}}, "dataset.features.income": "minmax"},
        ),
        (
            {"dataset.features.age.quantiles": {"int": [1, 100]}},
            "tune.space: dataset.features.age.quantiles: must be at least 2",
            {"space": {"dataset.features.age.quantiles": {"int": [2, 100]}}},
        ),
        ({"task.use.agee": {"choice": [True, False]}}, "did you mean age?", {"space": {"task.use.age": {"choice": [True, False]}}}),
        ({"x": {"int": [1, 8]}}, "x is no setting of task, train or dataset.features", {"space": LR}),
    ],
)
def test_a_space_that_fits_no_training_is_refused_before_anything_starts(space: dict[str, Any], fault: str, remedy: dict[str, Any]) -> None:
    config = load(CONF / "adult.yaml", {"tune": {"space": space}})
    with pytest.raises(ConfigError) as error:
        check_search(config, "adult.yaml")
    assert fault in str(error.value) and str(error.value).startswith("adult.yaml: ")
    assert len(str(error.value).splitlines()) == 1
    other_settings = {name: value for name, value in remedy.items() if name != "space"}
    check_search(load(CONF / "adult.yaml", {"tune": {"space": remedy["space"]}, **other_settings}))


@pytest.mark.parametrize(
    ("tune", "fault", "remedies"),
    [
        ({"budget": 3}, "tune.budget is 3 epochs, and a trial has 20", [{"tune.budget": 20}, {"train.epochs": 3}]),
        (
            {"scheduler": {"min_epochs": 21}},
            "tune.scheduler.min_epochs is 21, and a trial has 20 epochs",
            [{"tune.scheduler.min_epochs": 20}, {"train.epochs": 21}],
        ),
        (
            {"proposer": "grid"},
            "tune.proposer is grid, but train.lr has a range without steps",
            [{"tune.proposer": "tpe"}, {"tune.space": {"train.lr": {"choice": [0.1, 0.2]}}}],
        ),
    ],
)
def test_a_search_that_could_not_end_is_refused(tune: dict[str, Any], fault: str, remedies: list[dict[str, Any]]) -> None:
    wrong = {"tune": {"space": LR, **tune}}
    with pytest.raises(ConfigError, match=fault):
        check_search(load(CONF / "adult.yaml", wrong))
    for remedy in remedies:
        check_search(load(CONF / "adult.yaml", {**wrong, **remedy}))


def test_trials_have_workers_of_their_own() -> None:
    config = load(CONF / "adult.yaml", {"train.workers": 2, "train.balance": "auto", "tune": {"space": LR, "workers": 1}})
    placed = place_trials(config)
    assert (placed.train.workers, placed.model_identity, placed.tune) == (1, config.model_identity, config.tune)
    assert place_trials(load(CONF / "adult.yaml", {"train.workers": 2})).train.workers == 2
    sharded = {"train.strategy": {"kind": "sharded", "shard": 2}, "train.workers": 2}
    with pytest.raises(ConfigError, match=r"(?s)tune\.workers is 1, and .*; remove it for train\.workers, or give another"):
        place_trials(load(CONF / "adult.yaml", {**sharded, "tune.workers": 1}))
    assert place_trials(load(CONF / "adult.yaml", {**sharded, "tune.workers": 2})).train.workers == 2
    assert place_trials(load(CONF / "adult.yaml", sharded)).train.workers == 2


def test_models_without_an_average_are_not_combined() -> None:
    check_combination(load(CONF / "adult.yaml", {"tune.combine": 3}))
    with pytest.raises(ConfigError, match=r"tune\.combine is 3, but models of kind language have no average; set it to 0"):
        check_combination(load(CONF / "shakespeare.yaml", {"tune.combine": 3}))
    check_combination(load(CONF / "shakespeare.yaml", {"tune.combine": 0}))
    with pytest.raises(ConfigError, match=r"combine: is 1, and an average is of two models or more; give it 2 or more, or 0 for none"):
        load(CONF / "adult.yaml", {"tune.combine": 1})


def test_a_search_without_a_task_that_combines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combination, "_combining_kinds", list)
    with pytest.raises(ConfigError, match=r"tune\.combine is 2, but no task of this installation combines models; set it to 0"):
        check_combination(load(CONF / "adult.yaml", {"tune.combine": 2}))
    check_combination(load(CONF / "adult.yaml", {"tune.combine": 0}))


def test_the_best_trials_are_those_that_came_to_the_end_each_once() -> None:
    def trial(number: int, rung: int, score: float | None, run_id: str = "", error: str = "") -> TrialResult:
        return TrialResult(number, {}, run_id or f"run{number}", rung, 1, (), score, False, error)

    trials = [trial(1, 0, 0.99), trial(2, 2, 0.8), trial(3, 2, 0.9), trial(4, 2, 0.9, "run3"), trial(5, 2, None, error="diverged")]
    assert [best.number for best in best_trials(trials, 2, "max", 3)] == [3, 2]
    assert [best.number for best in best_trials(trials, 2, "min", 1)] == [2]
    assert not best_trials(trials, 3, "max", 3)


def test_a_search_places_its_trials_itself() -> None:
    automatic = {"train.parallel": "auto", "tune": {"space": LR}}
    with pytest.raises(ConfigError, match=r"train\.parallel is auto, but a search places its trials itself; set it to fixed"):
        check_search(load(CONF / "adult.yaml", automatic))
    check_search(load(CONF / "adult.yaml", {**automatic, "train.parallel": "fixed"}))


def test_a_search_over_folds_needs_one_of_them() -> None:
    folds = {"dataset.split": {"folds": 5}, "tune": {"space": LR}}
    with pytest.raises(ConfigError, match=r"train\.fold is not set, but dataset\.split has folds; set it, as to 1"):
        check_search(load(CONF / "adult.yaml", folds))
    check_search(load(CONF / "adult.yaml", {**folds, "train.fold": 1}))


@pytest.mark.parametrize(
    ("file", "params"),
    [("adult.yaml", {"train.lr": 0.003, "task.hidden": [64]}), ("adult_trees.yaml", {"task.learning_rate": 0.1, "task.leaves": 7})],
)
def test_a_trial_is_the_training_of_the_same_settings_by_hand(file: str, params: dict[str, Any]) -> None:
    config = load(CONF / file, {"tune": {"trials": 7}})
    trial, by_hand = parse_trial(config_values(config), params), load(CONF / file, params)
    assert trial.model_identity == by_hand.model_identity != config.model_identity
    assert (trial.data_identity, trial.tune) == (by_hand.data_identity, Tune())
    assert load(CONF / file).model_identity == config.model_identity, "a search is no part of a model"


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("10m", 600), ("1.5 h", 5_400), (40, None), (None, None)])
def test_a_budget_is_a_time_or_a_number_of_epochs(budget: Any, seconds: float | None) -> None:
    assert budget_seconds(Tune(budget=budget).budget) == seconds


def test_the_winner_s_file_keeps_comments_and_what_comes_from_the_environment(tmp_path: Path) -> None:
    origin, params = CONF / "adult.yaml", {"train.lr": 0.0031, "train.schedule": "constant", "task.hidden": [64, 32]}
    text = replace_settings(origin.read_text(), NewSettings(params))
    assert "${LOCKSTEP_RAW:-data/raw}" in text and "# Nine of ten rows are zero" in text and "tune:" not in text
    path = winner_path("x/adult.yaml", str(tmp_path / "adult_tuned.yaml"))
    write_winner(str(origin), path, NewSettings(params), ["Trial 3."])
    assert load(path).model_identity == load(origin, params).model_identity
    assert "# Trial 3." in path.read_text()
    assert winner_path("x/adult.yaml", str(path)) == path, "written again by another search"
    path.write_text(path.read_text() + "# mine\n")
    with pytest.raises(ConfigError, match="is no file that a search has written and nobody has edited"):
        winner_path("x/adult.yaml", str(path))
    assert winner_path("x/adult.yaml", "") == Path("x/adult_tuned.yaml")
    with pytest.raises(ConfigError, match=r"ends in \.yaml; rename it"):
        winner_path("x/adult.yaml", "winner.json")


@pytest.mark.parametrize(
    ("flags", "sections"),
    [
        ({}, set()),
        ({"train.workers": 1, "tune.trials": 7}, set()),
        ({"train.epochs": 40, "train.optimizer": "sgd", "train.workers": 1}, {"train"}),
        ({"task.hidden": [64, 32], "task.dropout": 0.5}, {"task"}),
        ({"dataset.features.fnlwgt": "minmax", "source.query": "SELECT * FROM adult"}, {"dataset", "source"}),
    ],
)
def test_the_winner_s_file_has_what_flags_have_changed(tmp_path: Path, flags: dict[str, Any], sections: set[str]) -> None:
    origin, params, path = str(CONF / "adult.yaml"), {"train.lr": 0.0031, "dataset.features.age": "minmax"}, tmp_path / "winner.yaml"
    changed = find_changes(origin, load(origin, flags))
    write_winner(origin, path, NewSettings({**changed, **params}, PLACEMENT), [])
    winner, by_hand = (with_absolute_paths(config, home()) for config in (load(path), load(origin, {**flags, **params})))
    assert changed.keys() == sections and winner.train.workers == load(origin).train.workers
    assert (winner.data_identity, winner.model_identity) == (by_hand.data_identity, by_hand.model_identity)


def test_features_are_replaced_between_the_comments_of_the_dataset(tmp_path: Path) -> None:
    origin, params = CONF / "adult.yaml", {"dataset.features.age": "minmax", "dataset.features.capital_gain_values.min_count": 2}
    params |= {"dataset.features.race": {"encoder": "hash", "buckets": 8}, "task.use.sex": False}
    text = replace_settings(origin.read_text(), NewSettings(params))
    assert "# Nine of ten rows are zero" in text and "    age: minmax\n    fnlwgt: normal_quantile\n" in text
    path = tmp_path / "winner.yaml"
    path.write_text(text)
    winner, by_hand = load(path), load(origin, params)
    assert (winner.data_identity, winner.model_identity) == (by_hand.data_identity, by_hand.model_identity)


@pytest.mark.parametrize(
    "features",
    [
        "{x: minmax, y: {encoder: quantile, bins: 8}}",
        "\n    x: minmax\n    y:\n      encoder: quantile\n      # few\n      bins: 8\n    # last\n",
        "\n    y: &shared {encoder: quantile, bins: 8}\n    x: minmax\n    z: *shared\n",
        "\n    <<: {y: {encoder: quantile, bins: 8}}\n    x: minmax\n",
    ],
)
def test_encoders_of_features_are_replaced_in_place(features: str) -> None:
    before = f"name: a\ndataset:\n  features: {features}\n  target: {{z: binary}} # what it predicts\n"
    expected = yaml.safe_load(before)
    expected["dataset"]["features"] |= {"x": {"encoder": "minmax", "impute": "mean"}, "y": {"encoder": "quantile", "bins": 16}}
    text = replace_settings(before, NewSettings({"dataset.features.x.impute": "mean", "dataset.features.y.bins": 16}))
    assert yaml.safe_load(text) == expected
    assert ("# last" in text) == ("# last" in before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("name: a\ntask: tabular\n", {"name": "a", "task": {"kind": "tabular", "hidden": [8]}, "train": {"lr": 0.1}}),
        (
            "task: {kind: tabular} # net\ntune: {trials: 3}\nname: a\n",
            {"task": {"kind": "tabular", "hidden": [8]}, "name": "a", "train": {"lr": 0.1}},
        ),
        ("train:\n  lr: 1\n  balance: auto\nname: a", {"train": {"lr": 0.1, "balance": "auto"}, "name": "a", "task": {"hidden": [8]}}),
    ],
)
def test_settings_are_replaced_in_place(before: str, after: dict[str, Any]) -> None:
    assert yaml.safe_load(replace_settings(before, NewSettings({"task.hidden": [8], "train.lr": 0.1}))) == after


def trial_result(number: int, rung: int, score: float | None, **fields: Any) -> TrialResult:
    values = (score,) * PLAN.rungs[rung]
    return TrialResult(number, {"train.lr": 0.1 * number}, f"run{number}", rung, len(values), values, score, False, **fields)


def search_result(trials: tuple[TrialResult, ...]) -> SearchResult:
    fresh = fresh_seeds(
        "auc", "max", 0.91, [("a", {"validation/auc": 0.9, "test/auc": 0.89}), ("b", {"validation/auc": 0.88, "test/auc": 0.87})]
    )
    return SearchResult("search", "auc", "max", PLAN.rungs, trials, (), 2, 12, 9, 24, "models:/m", "", fresh)


def test_the_result_says_what_was_saved_and_how_much_better_the_search_looks_than_it_is() -> None:
    result = search_result((trial_result(1, 0, 0.95), trial_result(2, 2, 0.91), trial_result(3, 0, None, error="NaN")))
    assert [trial.number for trial in rank_trials(result)] == [2, 1, 3], "those that came furthest first"
    lines = describe_search(result)
    assert any("12 epochs instead of 24: 50% saved; 9 were trained now" in line for line in lines)
    assert "validation auc 0.89 ± 0.01, test auc 0.88 ± 0.01" in lines[-2] and "0.91 is better than that by 0.02" in lines[-1]
    assert result.fresh.optimism == pytest.approx(0.02)
    assert fresh_seeds("loss", "min", 0.3, [("a", {"validation/loss": 0.35})]).optimism == pytest.approx(0.05)
    assert fresh_seeds("auc", "max", 0.3, []).optimism is None
    assert result.best.number == 2 and result.values()["saved_share"] == 0.5
    assert describe_first(result) == [], "trial 1 was proposed"
    begun = replace(result, begins_with_config=True)
    assert describe_first(begun) == ["the config as it stands, trial 1, has auc 0.95; the winner 0.91"]
    assert describe_first(replace(begun, winner=1)) == ["the config as it stands is the winner, with auc 0.95"]


def test_a_dimension_in_python_has_one_kind() -> None:
    assert Dimension(integers=(1, 3)).bounds == (1, 3)
    assert isinstance(Config.model_fields["tune"].default, Tune)
