"""A population decides the same whatever is done first, and each member is one config with its complete history. No Ray, and no MLflow."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from searches import run_decisions

from pipelines.config import load
from pipelines.config.train.changes import CHANGES, TrainChange, value_after
from pipelines.config.tuning import Dimension, Tune
from pipelines.errors import ConfigError
from pipelines.tracking.search_files import TrialResult, lineage
from pipelines.tuning.population import FACTORS, Population, comparison_epochs, create_population, population_size
from pipelines.tuning.proposals import proposer
from pipelines.tuning.search import WAIT, SearchPlan, TrialJob, TrialScore, best_trial, next_job, total_epochs
from pipelines.tuning.search_result import SearchResult, describe_lineage, describe_params, fresh_seeds
from pipelines.tuning.space import check_search

CONF = Path(__file__).parents[2] / "conf"
SPACE: dict[str, Any] = {
    "train.lr": {"log": [1e-4, 1e-1]},
    "train.weight_decay": {"uniform": [0.0, 0.5]},
    "task.hidden": {"choice": [[64], [256, 128]]},
}
SETTINGS = Tune(space=SPACE, trials=8, scheduler="pbt")  # type: ignore[arg-type]
CHANGING = {name: SETTINGS.space[f"train.{name}"] for name in ("lr", "weight_decay")}
POPULATION = Population(CHANGING, 0.25, 0.25, seed=0)
PLAN = SearchPlan(trials=8, rungs=(2, 4, 6, 8), population=POPULATION)
Jobs = list[TrialJob]
Results = dict[int, TrialScore]
Quality = Callable[[TrialJob], list[float] | None]


def quality(job: TrialJob) -> list[float]:
    """The metric after each epoch: an epoch adds more, the nearer its rate is to the best one, which falls from epoch to epoch."""
    changes, values = [TrainChange(**change) for change in job.params.get(CHANGES, ())], [0.5]
    for epoch in range(job.epochs):
        rate = value_after(job.params["train.lr"], "lr", changes, epoch)
        values.append(values[-1] + 0.05 - 0.02 * abs(math.log10(rate) + 2 + epoch / 8))
    return values[1:]


def drive(
    plan: SearchPlan = PLAN, settings: Tune = SETTINGS, order: int = 0, slots: int = 4, curve: Quality = quality
) -> tuple[Jobs, Results]:
    """As `run_decisions`, with scores from the curve of each trial; one without a curve fails."""

    def score(job: TrialJob) -> TrialScore:
        values = curve(job)
        return TrialScore(max(values), values[-1]) if values else TrialScore(None)

    return run_decisions(plan, settings, score, order, slots)


ALONE = drive(slots=1)


def rounds(jobs: Jobs) -> list[Jobs]:
    return [[job for job in jobs if job.rung == rung] for rung in range(max(job.rung for job in jobs) + 1)]


@pytest.mark.parametrize("slots", [1, 3, 9])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("parallel", [1, 4, 20])
def test_neither_what_is_done_first_nor_how_many_run_at_once_decides_anything(slots: int, order: int, parallel: int) -> None:
    assert drive(replace(PLAN, parallel=parallel), order=order, slots=slots) == ALONE


def test_no_more_members_are_under_way_than_the_setting_says() -> None:
    propose, jobs = proposer(SETTINGS, PLAN), Jobs()
    while isinstance(job := next_job(PLAN, propose, jobs, {}), TrialJob):
        jobs.append(job)
    assert (len(jobs), job) == (PLAN.parallel, WAIT)


def test_another_seed_makes_another_search_and_the_order_of_settings_does_not() -> None:
    assert drive(replace(PLAN, population=replace(POPULATION, seed=1)))[0] != ALONE[0]
    reverse = Tune(space=dict(reversed(SPACE.items())), trials=8, scheduler="pbt")  # type: ignore[arg-type]
    config = load(CONF / "adult.yaml").model_copy(update={"tune": reverse})
    population = create_population(config)
    assert list(population.space) == ["lr", "weight_decay"]
    assert drive(replace(PLAN, population=population), reverse) == ALONE


def test_every_round_has_all_members_and_two_of_eight_are_replaced() -> None:
    jobs, _ = ALONE
    assert [len(round_jobs) for round_jobs in rounds(jobs)] == [8, 8, 8, 8]
    for before, after in pairwise(rounds(jobs)):
        new = [job for job in after if job.fork and job.fork.epoch == before[0].epochs]
        assert after[:2] == new, "new ones come first, before those of whom they are go on"
        going_on = {job.trial for job in after} & {job.trial for job in before}
        assert len(going_on) == 6 and {job.fork.trial for job in new if job.fork} <= going_on
    assert sorted({job.trial for job in jobs}) == list(range(1, 8 + 2 * 3 + 1))


def test_the_worst_are_replaced_by_the_best_with_one_change_more() -> None:
    first, second, *_ = rounds(ALONE[0])
    ranked = sorted(first, key=lambda job: -quality(job)[-1])
    assert {job.trial for job in first} - {job.trial for job in second} == {job.trial for job in ranked[-2:]}
    params = {job.trial: job.params for job in first}
    for job in second[:2]:
        assert job.fork is not None and job.fork.trial in {best.trial for best in ranked[:2]} and job.fork.epoch == 2
        source = params[job.fork.trial]
        assert {name: value for name, value in job.params.items() if name != CHANGES} == source, "all other settings are inherited"
        (change,) = job.params[CHANGES]
        assert change["after_epoch"] == 2 and 1e-4 <= change["lr"] <= 0.1 and 0 <= change["weight_decay"] <= 0.5
        assert change["lr"] != source["train.lr"] and change["lr"] == float(f"{change['lr']:.4g}"), "as people write it"


def test_changes_add_up_to_the_history_of_a_member() -> None:
    jobs, _ = ALONE
    histories = [job.params.get(CHANGES, ()) for job in jobs if job.rung == 3]
    assert max(map(len, histories)) > 1, "some continue a trial that continued another one"
    by_trial = {job.trial: job for job in jobs}
    for job in by_trial.values():
        if job.fork:
            assert job.params[CHANGES][:-1] == by_trial[job.fork.trial].params.get(CHANGES, [])
        epochs = [change["after_epoch"] for change in job.params.get(CHANGES, ())]
        assert epochs == sorted(set(epochs)), "so that the config is valid"


def test_a_population_follows_an_optimum_that_moves() -> None:
    trials = SearchPlan(trials=8, rungs=(8,))
    unchanged = drive(trials)
    bests = [best_trial(plan, jobs, results) for plan, (jobs, results) in ((PLAN, ALONE), (trials, unchanged))]
    assert (bests[0].values[-1] or 0) > (bests[1].values[-1] or 0)  # type: ignore[union-attr]


def test_of_equal_members_the_last_are_replaced() -> None:
    jobs, results = drive(curve=lambda job: [0.7] * job.epochs)
    second = rounds(jobs)[1]
    assert {job.trial for job in second if job.fork is None} == {1, 2, 3, 4, 5, 6}
    assert {job.fork.trial for job in second if job.fork} <= {1, 2}
    assert best_trial(PLAN, jobs, results).number == 1  # type: ignore[union-attr]
    nearly = drive(curve=lambda job: [0.7 * (1 + 1e-7 * job.trial)] * job.epochs)
    assert nearly[0] == jobs, "rounding of sums over workers decides nothing"


def test_lower_may_be_better() -> None:
    low = replace(PLAN, direction="min")

    def negative(job: TrialJob) -> TrialScore:
        return TrialScore(-quality(job)[-1], -quality(job)[-1])

    jobs, results, propose = Jobs(), Results(), proposer(SETTINGS, low)
    while isinstance(job := next_job(low, propose, jobs, results), TrialJob):
        jobs.append(job)
        results[len(jobs) - 1] = negative(job)
    assert jobs == drive(curve=lambda job: [quality(job)[-1]])[0]


def test_members_are_compared_by_their_newest_value_and_won_by_their_best() -> None:
    """A member that was good once, and has diverged since, is nobody's source."""

    def curve(job: TrialJob) -> list[float]:
        return [0.99, 0.1] if job.trial == 1 else [0.5, 0.5 + 0.01 * job.trial]

    jobs, results = drive(curve=curve)
    assert 1 not in {job.trial for job in rounds(jobs)[1]}
    first_round = drive(replace(PLAN, rungs=(2,)), curve=curve)
    assert best_trial(PLAN, *first_round).number == 1, "whose model is that of its best epoch"  # type: ignore[union-attr]
    assert max(job.rung for job in jobs) == 3 and results[0].value == 0.99


def test_a_failed_member_is_replaced_whatever_the_quantile() -> None:
    jobs, _ = drive(curve=lambda job: None if job.trial in (1, 2, 3, 4, 5) else quality(job))
    second = rounds(jobs)[1]
    assert {job.trial for job in second} == {6, 7, 8, 9, 10, 11, 12, 13}
    assert {job.fork.trial for job in second if job.fork} <= {6, 7, 8}
    later, _ = drive(curve=lambda job: None if job.rung and not job.fork else quality(job))
    assert [len(round_jobs) for round_jobs in rounds(later)] == [8, 8, 8, 8]
    jobs, results = drive(curve=lambda job: None)
    assert (Counter(job.rung for job in jobs), best_trial(PLAN, jobs, results)) == ({0: 8}, None)


OWN: dict[str, Any] = {"train.lr": 0.00123456, "train.weight_decay": 0.1, "task.hidden": [64]}
WITH_OWN = replace(PLAN, first=OWN)


def test_the_config_as_it_stands_is_trained_to_the_end_and_others_are_replaced() -> None:
    jobs, results = drive(WITH_OWN, curve=lambda job: [0.1] if job.trial == 1 else quality(job))
    assert jobs[0].params == OWN and [job.epochs for job in jobs if job.trial == 1] == [2, 4, 6, 8], "although it is the worst"
    assert [len(round_jobs) for round_jobs in rounds(jobs)] == [8, 8, 8, 8] and len({job.trial for job in jobs}) == 8 + 2 * 3
    assert best_trial(WITH_OWN, jobs, results).number != 1  # type: ignore[union-attr]
    good, scores = drive(WITH_OWN, curve=lambda job: [0.9] * job.epochs if job.trial == 1 else [0.6])
    assert best_trial(WITH_OWN, good, scores).values[-1] == 0.9  # type: ignore[union-attr]
    failing, _ = drive(WITH_OWN, curve=lambda job: None if job.trial == 1 else quality(job))
    assert [job.rung for job in failing if job.trial == 1] == [0]


@pytest.mark.parametrize(
    ("trials", "quantile", "replaced"), [(2, 0.25, 1), (3, 0.5, 1), (5, 0.5, 2), (8, 0.5, 4), (20, 0.1, 2), (4, 0.01, 1)]
)
def test_at_least_one_and_at_most_half_are_replaced(trials: int, quantile: float, replaced: int) -> None:
    plan = replace(PLAN, trials=trials, population=replace(POPULATION, quantile=quantile))
    jobs, _ = drive(plan)
    assert [sum(bool(job.fork and job.fork.epoch == 2) for job in rounds(jobs)[1])] == [replaced]


def test_shared_epochs_count_once_and_a_budget_ends_after_whole_rounds() -> None:
    jobs, _ = ALONE
    assert total_epochs(jobs) == 8 * 8
    for budget, expected in ((64, 32), (63, 24), (48, 24), (47, 16), (17, 8)):
        fewer, results = drive(replace(PLAN, budget_epochs=budget))
        assert fewer == jobs[:expected] and total_epochs(fewer) <= budget
        best = best_trial(PLAN, fewer, results)
        assert best is not None and best.rungs == expected // 8


def test_time_that_runs_out_within_a_round_leaves_the_winner_of_the_round_before() -> None:
    jobs, results = ALONE
    complete = best_trial(PLAN, jobs[:16], {index: results[index] for index in range(16)})
    begun = best_trial(PLAN, jobs[:19], {index: results[index] for index in range(19)})
    assert complete is not None and begun is not None and complete.number == begun.number
    assert best_trial(PLAN, jobs[:3], {index: results[index] for index in range(3)}) is not None


def test_a_trial_that_continues_another_one_has_its_results_too() -> None:
    jobs, results = ALONE
    late = next(job for job in jobs if job.fork and job.fork.epoch == 6)
    best = best_trial(PLAN, jobs, {**results, jobs.index(late): TrialScore(2.0, 2.0)})
    assert best is not None and (best.number, best.rungs) == (late.trial, 4)


@pytest.mark.parametrize(
    ("dimension", "value", "resample", "expected"),
    [
        (Dimension(log=(1e-4, 1e-1)), 0.01, 0.0, {0.008, 0.0125}),
        (Dimension(log=(1e-4, 1e-1)), 0.1, 0.0, {0.08}),
        (Dimension(uniform=(0.0, 0.5)), 0.45, 0.0, {0.36, 0.5}),
        (Dimension(choice=(0.1, 0.001, 0.01)), 0.01, 0.0, {0.001, 0.1}),
        (Dimension(choice=(0.1, 0.001, 0.01)), 0.1, 0.0, {0.01}),
        (Dimension(integers=(1, 9)), 5, 0.0, {4, 6}),
        (Dimension(choice=(0.1, 0.2)), 0.1, 1.0, {0.2}),
    ],
)
def test_a_value_changes_to_others_within_its_range(dimension: Dimension, value: float, resample: float, expected: set[float]) -> None:
    population = Population({"lr": dimension}, 0.25, resample, 0)
    changed = [population.change({"train.lr": value}, 3, Random(seed)) for seed in range(40)]
    assert {params[CHANGES][0]["lr"] for params in changed} == expected
    assert all(params[CHANGES] == [{"after_epoch": 3, "lr": params[CHANGES][0]["lr"]}] for params in changed)
    assert FACTORS == (0.8, 1.25)


def test_values_may_be_drawn_anew() -> None:
    population = Population({"lr": Dimension(log=(1e-4, 1e-1))}, 0.25, 1.0, 0)
    drawn = [population.change({"train.lr": 0.01}, 3, Random(seed))[CHANGES][0]["lr"] for seed in range(300)]
    assert len(set(drawn)) > 290 and 1e-4 <= min(drawn) < 3e-4 and 3e-2 < max(drawn) <= 1e-1
    assert 0.2 < sum(rate < 1e-3 for rate in drawn) / 300 < 0.47, "each order of magnitude is as likely"
    rarely = Population({"lr": Dimension(log=(1e-4, 1e-1))}, 0.25, 0.25, 0)
    near = [rarely.change({"train.lr": 0.01}, 3, Random(seed))[CHANGES][0]["lr"] in (0.008, 0.0125) for seed in range(300)]
    assert 0.65 < sum(near) / 300 < 0.85


def test_a_zero_stays_and_the_other_setting_changes() -> None:
    params = replace(POPULATION, resample=0.0).change({"train.lr": 0.01, "train.weight_decay": 0.0}, 2, Random(0))
    assert params[CHANGES][0].keys() == {"after_epoch", "lr"}


def test_a_change_is_of_what_is_in_place() -> None:
    present = {"train.lr": 0.01, CHANGES: [{"after_epoch": 2, "lr": 0.02}, {"after_epoch": 4, "lr": 0.04}]}
    params = Population({"lr": Dimension(log=(1e-4, 1))}, 0.25, 0.0, 0).change(present, 6, Random(0))
    assert params[CHANGES][:2] == present[CHANGES] and params[CHANGES][2]["lr"] in (0.032, 0.05)
    assert len(present[CHANGES]) == 2, "the source keeps its own"


def test_no_two_members_are_one_training() -> None:
    plan = replace(PLAN, trials=12, population=Population({"lr": Dimension(log=(1e-3, 1e-2))}, 0.5, 0.0, 0))
    jobs, _ = drive(plan, curve=lambda job: quality(job) if job.trial in (1, 2, 3, 4, 5, 6) else None)
    assert [len(part) for part in rounds(jobs)][:2] == [12, 12]
    for part in rounds(jobs):
        assert len({repr(job.params) for job in part}) == len(part)
    two_rates = Population({"lr": Dimension(choice=(0.1, 0.01))}, 0.5, 0.0, 0)
    settings = Tune(space={"train.lr": {"choice": [0.1, 0.01]}, "task.members": {"int": [1, 4]}}, proposer="grid", trials=8)  # type: ignore[arg-type]
    few, results = drive(replace(plan, trials=8, population=two_rates), settings, curve=lambda job: [1.0] if job.trial == 1 else None)
    assert [len(part) for part in rounds(few)] == [8, 2, 2, 2], "its one other rate, and no second time"
    assert best_trial(replace(plan, population=two_rates), few, results) is not None


def test_a_grid_may_be_the_population() -> None:
    settings = Tune(space={"train.lr": {"choice": [0.1, 0.01, 0.001]}}, proposer="grid", trials=8)  # type: ignore[arg-type]
    plan = replace(PLAN, population=Population({"lr": settings.space["train.lr"]}, 0.25, 0.25, 0))
    jobs, _ = drive(plan, settings)
    assert [job.params["train.lr"] for job in rounds(jobs)[0]] == [0.1, 0.01, 0.001] and [len(part) for part in rounds(jobs)] == [3] * 4


@pytest.mark.parametrize(("trials", "layers", "size"), [(12, 1, 2), (12, 6, 12), (8, 6, 8)])
def test_first_members_are_distinct_and_as_many_as_the_space_has(trials: int, layers: int, size: int) -> None:
    space: dict[str, Any] = {"train.lr": {"choice": [1e-3, 3e-3]}, "task.layers": {"choice": list(range(layers))}}
    settings = Tune(space=space, trials=trials, scheduler="pbt")  # type: ignore[arg-type]
    assert population_size(settings) == size
    population = Population({"lr": settings.space["train.lr"]}, 0.25, 0.25, 0)
    plan = replace(PLAN, trials=population_size(settings), population=population)
    jobs, results = drive(plan, settings)
    first = rounds(jobs)[0]
    assert [job.trial for job in first] == list(range(1, size + 1)) and len({repr(job.params) for job in first}) == size
    assert drive(plan, settings, order=3, slots=2) == (jobs, results) and best_trial(plan, jobs, results) is not None
    proposed = [proposer(settings, plan)(number, ()) for number in range(1, size + 1)]
    assert proposed != [job.params for job in first], "a proposal that another member has is passed over"


def test_a_space_without_an_end_has_as_many_members_as_trials() -> None:
    assert population_size(SETTINGS) == 8
    assert population_size(Tune(space={"train.lr": {"log": [1e-3, 1e-2]}, "task.members": {"int": [1, 4]}}, trials=30)) == 30  # type: ignore[arg-type]


@pytest.mark.parametrize(("epochs", "interval", "expected"), [(8, 2, (2, 4, 6, 8)), (5, 2, (2, 4, 5)), (3, 1, (1, 2, 3)), (2, 9, (2,))])
def test_members_are_compared_after_every_few_epochs(epochs: int, interval: int, expected: tuple[int, ...]) -> None:
    assert comparison_epochs(epochs, interval) == expected


LR: dict[str, Any] = {"train.lr": {"log": [1e-3, 1e-1]}}
CHANGED: dict[str, Any] = {"train.changes": [{"after_epoch": 1, "lr": 0.1}]}
ONE_RATE: dict[str, Any] = {"tune.space": {"train.lr": {"choice": [0.1]}}}
POOR: dict[str, Any] = {"tune.budget": 59}
UNEVEN: dict[str, Any] = {"kind": "pbt", "interval_epochs": 3}
FEW_RATES: dict[str, Any] = {
    "tune.space": {"train.lr": {"choice": [0.1, 0.2]}}, "train.epochs": 8, "tune.scheduler": {"kind": "pbt", "interval_epochs": 4},
    "tune.budget": 15,
}  # fmt: skip
RARE: dict[str, Any] = {"tune.scheduler": {"kind": "pbt", "interval_epochs": 9}}


@pytest.mark.parametrize(
    ("values", "fault", "remedy"),
    [
        ({"tune.space": {"task.dropout": {"uniform": [0, 0.5]}}}, "add one, such as train.lr", {"tune.space": LR}),
        ({"tune.space": {"task.dropout": {"uniform": [0, 0.5]}}}, "or set tune.scheduler to asha", {"tune.scheduler": "asha"}),
        (ONE_RATE, "has several values in tune.space", {"tune.space": LR}),
        ({"tune.trials": 1}, "tune.trials is 1, and a population has two members or more; raise it", {"tune.trials": 2}),
        (RARE, "so that nothing would change; lower it", {"tune.scheduler": "pbt"}),
        (RARE, "or raise train.epochs", {"train.epochs": 10}),
        (POOR, "in which a population of 30 has no two rounds, and nothing changes; raise it to 60", {"tune.budget": 60}),
        (POOR, "or lower tune.trials to 29", {"tune.trials": 29}),
        ({"tune.trials": 2, "tune.budget": 4, "tune.scheduler": UNEVEN}, "nothing changes; raise it to 8", {"tune.budget": 8}),
        (FEW_RATES, "a population of 2 has no two rounds, and nothing changes; raise it to 16", {"tune.budget": 16}),
        (CHANGED, "which decides changes itself; remove one of them", {"train.changes": []}),
        (CHANGED, "which decides changes itself; remove one of them", {"tune.scheduler": "asha"}),
        ({"train.early_stopping": 2}, "whose members go on with other settings; set it to null", {"train.early_stopping": None}),
        ({"train.early_stopping": 2}, "or tune.scheduler to asha", {"tune.scheduler": "asha"}),
        ({"train.max_steps": 9}, "which changes settings after whole epochs; set it to null", {"train.max_steps": None}),
        ({"train.max_steps": 9}, "or tune.scheduler to asha", {"tune.scheduler": "asha"}),
        ({"train.strategy": "local_sgd"}, "set train.strategy to ddp or exact or sharded", {"train.strategy": "exact"}),
    ],
)  # fmt: skip
def test_a_population_that_cannot_be_trained_is_refused_with_a_remedy(
    values: dict[str, Any], fault: str, remedy: Mapping[str, Any]
) -> None:
    base = {"tune.space": LR, "tune.scheduler": "pbt", "train.epochs": 4}
    with pytest.raises(ConfigError) as error:
        check_search(load(CONF / "adult.yaml", {**base, **values}), "x.yaml")
    assert fault in str(error.value) and len(str(error.value).splitlines()) == 1
    check_search(load(CONF / "adult.yaml", {**base, **values, **remedy}))


def test_trees_change_nothing() -> None:
    space = {"task.leaves": {"int": [2, 31]}}
    with pytest.raises(ConfigError, match=r"neither train\.lr nor train\.weight_decay has several values"):
        check_search(load(CONF / "adult_trees.yaml", {"tune.space": space, "tune.scheduler": "pbt"}))
    check_search(load(CONF / "adult_trees.yaml", {"tune.space": space, "tune.scheduler": "asha"}))


def test_the_text_says_where_the_winner_comes_from() -> None:
    changes = [{"after_epoch": 2, "lr": 0.02}, {"after_epoch": 4, "lr": 0.03, "weight_decay": 0.1}]

    def trial(number: int, source: int = 0, epoch: int = 0) -> TrialResult:
        params = {"train.lr": 0.01, "task.hidden": [8], **({CHANGES: changes} if number == 9 else {})}
        return TrialResult(number, params, f"run{number}", 1, 2, (0.5, 0.6), 0.6, False, "", source, epoch)

    assert describe_params(trial(9).params) == "lr 0.01, hidden [8]; after epoch 2 lr 0.02; after epoch 4 lr 0.03, weight_decay 0.1"
    trials = (trial(3), trial(7, 3, 2), trial(9, 7, 4))
    assert [member.number for member in lineage(trials, 9)] == [3, 7, 9]
    fresh = fresh_seeds("auc", "max", 0.6, [])
    result = SearchResult("search", "auc", "max", (2, 4, 6), trials, (), 9, 12, 9, 24, "models:/m", "", fresh)
    assert describe_lineage(result) == ["the winner began as trial 3, and became trial 7 after epoch 2, then trial 9 after epoch 4"]
    assert describe_lineage(replace(result, winner=3)) == []
