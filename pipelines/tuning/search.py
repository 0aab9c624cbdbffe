"""Decides what a search tries next: a pure function of its plan and of results, whichever came first.

A search is a list of jobs. A job trains one trial up to an epoch. Job j is decided from the results of the jobs before it but the last
`parallel` - 1, in the order of their numbers: results that come early wait for their turn. So the list is the same on any number of
machines, after any kill, and however long each job takes; only `parallel`, which is a setting, decides how much it has seen.

Asynchronous successive halving (ASHA, Li et al. 2020): of the trials that have completed a rung, the best share of 1 / `reduction` that
has not gone on goes on to the next rung; where none is left to go on, a new trial begins. Other than in ASHA, no more than that share
goes on while trials begin: where proposals become better and better, each new one is among the best, and almost all would go on. Where no
trial is left to begin, the jobs under way are seen one after another, whoever of the best share is left goes on, and the search ends when
no trial does. A trial that has failed counts as the worst.

Trial 1 is the config as it stands, where it lies in the space. It is trained to the end whatever its results, so that the winner is not
worse than it.

Where the plan has a `population`, that decides instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pipelines.tuning.population import Population

SCORE_DIGITS = 4
"""Significant digits of scores that are compared: workers add up in an order that depends on their number, unless the strategy is exact."""
Params = dict[str, Any]
"""Values by the dotted names of settings."""


class NoJob(Enum):
    """Why there is no job."""

    WAIT = "a result is awaited"
    DONE = "the search is over"


WAIT, DONE = NoJob.WAIT, NoJob.DONE


@dataclass(frozen=True)
class ForkPoint:
    """Where a trial of a population leaves the one that it continues: until there, both are one training."""

    trial: int
    epoch: int
    """Epochs that both have."""


@dataclass(frozen=True)
class TrialJob:
    """Trains a trial up to an epoch."""

    trial: int
    """Counted from 1, in the order of proposals."""
    params: Params
    epochs: int
    """Epochs that the trial has at its end, of those of the whole training."""
    rung: int
    """Counted from 0."""
    fork: ForkPoint | None = None
    """None if the trial does not continue another one."""


@dataclass(frozen=True)
class TrialScore:
    """The result of a job."""

    value: float | None
    """Best value of the metric until the job's epoch; None if the trial has failed, or the metric is not defined."""
    newest: float | None = None
    """Value after the job's last epoch, by which a population is compared."""


@dataclass(frozen=True)
class SearchPlan:
    """All that decides a search, besides results."""

    trials: int
    rungs: tuple[int, ...]
    """Epochs of each rung, the whole training's last."""
    reduction: int = 3
    parallel: int = 4
    direction: Literal["min", "max"] = "max"
    budget_epochs: int | None = None
    """Epochs of all jobs together, after which no further job is begun."""
    first: Params | None = None
    """Parameters of trial 1, which is trained to the end; None if it is proposed like any other."""
    population: "Population | None" = None
    """How members change; None if trials keep their settings."""


@dataclass(frozen=True)
class SeenTrial:
    """A trial with those of its results that a decision may see."""

    number: int
    params: Params
    values: tuple[float | None, ...] = ()
    """By rung."""

    @property
    def rungs(self) -> int:
        """Number of completed rungs."""
        return len(self.values)


Propose = Callable[[int, Sequence[SeenTrial]], Params | None]
"""Proposes the parameters of the trial with this number, given those before it as far as they are seen; None if there are no others."""


def rung_epochs(epochs: int, min_epochs: int, reduction: int) -> tuple[int, ...]:
    """Epochs of each rung: `min_epochs`, and `reduction` times as many at each further one, until those of the whole training."""
    rungs = [min(min_epochs, epochs)]
    while rungs[-1] < epochs:
        rungs.append(min(rungs[-1] * reduction, epochs))
    return tuple(rungs)


def next_job(plan: SearchPlan, propose: Propose, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> TrialJob | NoJob:
    """The job after `jobs`, given the results of some of them by their index.

    Pure if `propose` is. Returns WAIT if it follows from a result that is not there yet.
    """
    if plan.population is not None:
        return plan.population.next_job(plan, propose, jobs, results)
    visible = max(0, len(jobs) - plan.parallel + 1)
    if not all(index in results for index in range(visible)):
        return WAIT
    if job := _first_trial(plan, jobs, results, visible) or _promotion(plan, jobs, results, visible, is_capped=True):
        return _job_or_end(plan, jobs, results, job)
    if job := _new_trial(plan, propose, jobs, results, visible):
        return _job_or_end(plan, jobs, results, job)
    for further in range(visible, len(jobs) + 1):  # no trial is left to begin: results are seen one by one
        if further and further - 1 not in results:
            return WAIT
        if job := _first_trial(plan, jobs, results, further) or _promotion(plan, jobs, results, further, is_capped=False):
            return _job_or_end(plan, jobs, results, job)
    return _last_promotion(plan, jobs, results) or DONE


def job_after_budget(plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> TrialJob | NoJob:
    """The job with which a search goes on whose budget is over. The config as it stands comes to the end in any case. A trial that is
    better at the rung to which others came is trained on too, or the config would win for want of another.

    Returns WAIT while a result is not there."""
    if plan.first is None or plan.population is not None:
        return DONE
    if len(results) < len(jobs):
        return WAIT
    return _last_promotion(plan, jobs, results) or DONE


def visible_trials(jobs: Sequence[TrialJob], results: Mapping[int, TrialScore], visible: int) -> list[SeenTrial]:
    """All trials of the jobs, in order of their numbers, with the results of the first `visible` jobs."""
    values: dict[int, list[float | None]] = {}
    for index, job in enumerate(jobs):
        inherited = values[job.fork.trial][: job.rung] if job.fork else []
        trial_values = values.setdefault(job.trial, inherited)
        if index < visible:
            trial_values.append(results[index].value)
    params = {job.trial: job.params for job in reversed(jobs)}
    return [SeenTrial(number, params[number], tuple(values[number])) for number in sorted(values)]


def rank(value: float | None, direction: Literal["min", "max"]) -> float:
    """A number by which scores are sorted, the best one least: the value with SCORE_DIGITS significant digits."""
    if value is None or isnan(value):
        return inf
    rounded = float(f"{value:.{SCORE_DIGITS}g}")
    return -rounded if direction == "max" else rounded


def best_trial(plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> SeenTrial | None:
    """The best of the trials that came furthest, the first of equal ones; None if all have failed."""
    jobs = jobs if plan.population is None else plan.population.complete_rounds(plan, jobs, results)
    trials = [trial for trial in visible_trials(jobs, results, len(jobs)) if trial.values and rank(trial.values[-1], plan.direction) < inf]
    return min(trials, key=lambda trial: (-trial.rungs, rank(trial.values[-1], plan.direction), trial.number), default=None)


def total_epochs(jobs: Sequence[TrialJob]) -> int:
    """Epochs that the jobs train together, each trial's once, and those that trials share once."""
    reached: dict[int, int] = {}
    for job in jobs:
        reached[job.trial] = max(job.epochs - (job.fork.epoch if job.fork else 0), reached.get(job.trial, 0))
    return sum(reached.values())


def within_budget(plan: SearchPlan, jobs: Sequence[TrialJob], *further: TrialJob) -> TrialJob | NoJob:
    """The first of these jobs; DONE if all of them would be more epochs than the budget has."""
    if plan.budget_epochs is not None and total_epochs([*jobs, *further]) > plan.budget_epochs:
        return DONE
    return further[0]


def _job_or_end(plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore], job: TrialJob) -> TrialJob | NoJob:
    """The job, or what comes after the budget if it would be more epochs than that has."""
    return job if within_budget(plan, jobs, job) is job else job_after_budget(plan, jobs, results)


def _first_trial(plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore], visible: int) -> TrialJob | None:
    """The config as it stands goes on, unless it has failed; None if it need not, or waits for a result."""
    own_jobs = [index for index, job in enumerate(jobs) if job.trial == 1] if plan.first is not None else []
    if not own_jobs or own_jobs[-1] >= visible or rank(results[own_jobs[-1]].value, plan.direction) == inf:
        return None
    rung = jobs[own_jobs[-1]].rung + 1
    return TrialJob(1, jobs[0].params, plan.rungs[rung], rung) if rung < len(plan.rungs) else None


def _promotion(
    plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore], visible: int, is_capped: bool
) -> TrialJob | None:
    """The next trial that goes on, from the highest rung down; None if there is none. If it `is_capped`, no more than a rung's share go."""
    trials, reached = visible_trials(jobs, results, visible), {job.trial: job.rung for job in jobs}
    chosen = [rung for number, rung in reached.items() if number != 1 or plan.first is None]
    for rung in reversed(range(len(plan.rungs) - 1)):
        completed = [trial for trial in trials if trial.rungs > rung]
        most = len(completed) // plan.reduction
        if is_capped and sum(last > rung for last in chosen) >= most:
            continue
        ranked = sorted(completed, key=lambda trial: (rank(trial.values[rung], plan.direction), trial.number))
        for trial in ranked[:most]:
            if reached[trial.number] == rung and rank(trial.values[rung], plan.direction) < inf:
                return TrialJob(trial.number, trial.params, plan.rungs[rung + 1], rung + 1)
    return None


def _new_trial(
    plan: SearchPlan, propose: Propose, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore], visible: int
) -> TrialJob | None:
    number = max((job.trial for job in jobs), default=0) + 1
    if number > plan.trials:
        return None
    params = propose(number, visible_trials(jobs, results, visible))
    return None if params is None else TrialJob(number, params, plan.rungs[0], 0)


def _last_promotion(plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> TrialJob | None:
    """The best trial goes on if none has completed the last rung; None if one has, or if all have failed. The config as it stands, which
    has completed it in any case, counts only where it is the best at the rung that others have come to."""
    trials = [trial for trial in visible_trials(jobs, results, len(jobs)) if trial.values and rank(trial.values[-1], plan.direction) < inf]
    furthest = max((trial.rungs for trial in trials if trial.number != 1 or plan.first is None), default=0)
    equal = [trial for trial in trials if trial.rungs >= furthest > 0]
    best = min(equal, key=lambda trial: (rank(trial.values[furthest - 1], plan.direction), trial.number), default=None)
    if best is None or best.rungs == len(plan.rungs):
        return None
    return TrialJob(best.number, best.params, plan.rungs[best.rungs], best.rungs)
