"""A search that has ended, made by the search's own decisions over invented curves, for tests of its page. No Ray, and no MLflow."""

import math
import random
from collections.abc import Callable
from typing import Any

from pipelines.config.tuning import Dimension, Tune
from pipelines.tracking.search_files import TrialResult
from pipelines.tuning.proposals import proposer
from pipelines.tuning.search import DONE, WAIT, SearchPlan, TrialJob, TrialScore, best_trial, next_job, total_epochs
from pipelines.tuning.search_result import SearchResult, fresh_seeds

SPACE: dict[str, Any] = {
    "train.lr": {"log": [1e-4, 1e-1]},
    "task.dropout": {"uniform": [0, 0.6]},
    "task.hidden": {"choice": [[64], [256, 128], [512, 512]]},
    "task.layers": {"int": [1, 4]},
}
CONFIG_PARAMS: dict[str, Any] = {"train.lr": 1e-3, "task.dropout": 0.1, "task.hidden": [64], "task.layers": 2}


def run_decisions(
    plan: SearchPlan, settings: Tune, score: Callable[[TrialJob], TrialScore], order: int, slots: int
) -> tuple[list[TrialJob], dict[int, TrialScore]]:
    """All jobs of a search and their results, where `slots` run at a time, and end in an order of chance."""
    chance, propose = random.Random(order), proposer(settings, plan)
    jobs, results, running = list[TrialJob](), dict[int, TrialScore](), list[int]()
    while True:
        decision = next_job(plan, propose, jobs, results) if len(running) < slots else WAIT
        if isinstance(decision, TrialJob):
            jobs.append(decision)
            running.append(len(jobs) - 1)
            continue
        if decision is DONE and not running:
            return jobs, results
        assert running, "a search that waits has something to wait for"
        index = running.pop(chance.randrange(len(running)))
        results[index] = score(jobs[index])


def sample_curve(params: dict[str, Any], epochs: int) -> tuple[float, ...]:
    """AUC after each epoch: the rate decides most of it, dropout a little, and the number of layers nothing."""
    distance = 0.03 * (math.log10(params["train.lr"]) + 2.2) ** 2 + 0.1 * (params["task.dropout"] - 0.3) ** 2
    width = 0.004 * [64, 256, 512].index(params["task.hidden"][0])
    return tuple(0.93 + width - distance - 0.12 / (epoch + 0.4) for epoch in range(1, epochs + 1))


def sample_search(trials: int = 30, direction: Any = "max", failed: tuple[int, ...] = ()) -> SearchResult:
    """The result of a search that begins with the config; trials of these numbers have failed."""
    plan = SearchPlan(trials=trials, rungs=(1, 3, 9, 12), first=CONFIG_PARAMS, direction=direction)
    sign = 1 if direction == "max" else -1
    propose, jobs, scores = proposer(Tune(space=SPACE), plan), list[TrialJob](), dict[int, TrialScore]()
    while (job := next_job(plan, propose, jobs, scores)) is not DONE:
        assert isinstance(job, TrialJob), "each result is there at once"
        jobs.append(job)
        score = None if job.trial in failed else sign * sample_curve(job.params, job.epochs)[-1]
        scores[len(jobs) - 1] = TrialScore(score)
    results = []
    for number in range(1, max(job.trial for job in jobs) + 1):
        last = [job for job in jobs if job.trial == number][-1]
        values = () if number in failed else tuple(sign * value for value in sample_curve(last.params, last.epochs))
        error = "train.lr is too high; lower it" if number in failed else ""
        best = None if number in failed else values[-1]
        results.append(TrialResult(number, last.params, f"{number:032x}", last.rung, len(values), values, best, False, error))
    best_of_all = best_trial(plan, jobs, scores)
    assert best_of_all is not None and best_of_all.values[-1] is not None
    fresh = [(f"fresh{seed}", {"validation/auc": best_of_all.values[-1] - 0.004 * seed, "test/auc": 0.9 + 0.01 * seed}) for seed in (1, 2)]
    return SearchResult(
        run_id="search",
        metric="auc",
        direction=direction,
        rungs=plan.rungs,
        trials=tuple(results),
        jobs=tuple(jobs),
        winner=best_of_all.number,
        epochs=total_epochs(jobs),
        epochs_trained=total_epochs(jobs) - 5,
        full_grid=trials * plan.rungs[-1],
        model="models:/m-1",
        output="conf/toy_tuned.yaml",
        fresh=fresh_seeds("auc", direction, best_of_all.values[-1], fresh),
        begins_with_config=True,
    )


def dimensions() -> dict[str, Dimension]:
    return Tune(space=SPACE).space
