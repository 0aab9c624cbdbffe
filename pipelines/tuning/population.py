"""Population based training (PBT, Jaderberg et al. 2017, "Population based training of neural networks"): members of a population change
their learning rate and weight decay while they are trained, as those do that are ahead. Pure, as `search` is.

The rounds are synchronous, so that neither machines nor their speed decide anything: after every few epochs all members are compared by
their newest value of the metric, and so many of the worst are stopped. Each is replaced by a new trial, the continuation of one of the
best: its config, with one entry more in `train.changes`. So a trial with its whole history is one config, which trains the same model
from nothing. What a new trial changes follows from the search's seed and from its number.

The first members are distinct, as new ones are: two equal ones would be one training. Where the space has fewer combinations than there
are trials, the population is as small.

Two things differ from the paper. The config as it stands, trial 1, is never stopped, so that the winner is not worse than it. And a member
that has failed is replaced whatever the quantile.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, exp, inf, log, prod
from random import Random
from typing import Any

from pipelines.config import Config
from pipelines.config.train.changes import CHANGEABLE, CHANGES
from pipelines.config.train.strategy import strategy_kinds_with
from pipelines.config.tuning import Dimension, Tune
from pipelines.tuning.proposals import grid_values, round_parameter
from pipelines.tuning.search import (
    DONE,
    WAIT,
    ForkPoint,
    NoJob,
    Params,
    Propose,
    SearchPlan,
    TrialJob,
    TrialScore,
    rank,
    within_budget,
)

FACTORS = (0.8, 1.25)
"""By one of which a value is multiplied, as in the paper's experiments."""
_MOST_DRAWS = 16
"""Attempts at a change: a value may be at an end of its range, and another new trial may have it already. If all fail, as with a choice
of two rates, there is one member less."""
_MOST_PROPOSALS = 100
"""Proposals for a first member, of which those that another one has are passed over. If all are, there is one member less."""


@dataclass(frozen=True)
class Population:
    """How a population changes. `next_job` decides all of it."""

    space: Mapping[str, Dimension]
    """The settings of `train` that change, by name and in that order, of those in the search's space."""
    quantile: float
    resample: float
    seed: int

    def next_job(self, plan: SearchPlan, propose: Propose, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> TrialJob | NoJob:
        """As `search.next_job`, for trials that are members of this population."""
        if not all(index in results for index in range(len(jobs) - plan.parallel + 1)):
            return WAIT
        if not jobs or jobs[-1].rung == 0:
            params = _first_params(plan, propose, jobs) if len(jobs) < plan.trials else None
            if params is not None:
                return within_budget(plan, jobs, TrialJob(len(jobs) + 1, params, plan.rungs[0], 0))
        if not jobs:
            return DONE
        starts = round_starts(jobs)
        if len(starts) > 1 and len(jobs) - starts[-1] < len(members := self._members(plan, jobs[: starts[-1]], results)):
            return members[len(jobs) - starts[-1]]
        if not all(index in results for index in range(len(jobs))):
            return WAIT
        members = self._members(plan, jobs, results)
        if not members or within_budget(plan, jobs, *members) is DONE:  # whole rounds, since half a round has no winner
            return DONE
        return members[0]

    def complete_rounds(self, plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> Sequence[TrialJob]:
        """The jobs without a last round in which not all members have one, as where time has run out. The first round stays in any case."""
        start = round_starts(jobs)[-1] if jobs else 0
        is_complete = not start or len(jobs) - start == len(self._members(plan, jobs[:start], results))
        return jobs if is_complete else jobs[:start]

    def _members(self, plan: SearchPlan, jobs: Sequence[TrialJob], results: Mapping[int, TrialScore]) -> list[TrialJob]:
        """The jobs of the round after all of `jobs`; none after the last round, or if no member is left.

        New trials come first, so that their beginnings are copied before those of whom they are go on."""
        start = round_starts(jobs)[-1]
        rung = jobs[start].rung + 1
        if rung == len(plan.rungs):
            return []
        results_by_trial = {job.trial: (job, results[index]) for index, job in enumerate(jobs) if index >= start}
        best, stopped = self._compare(plan, {trial: score for trial, (_, score) in results_by_trial.items()})
        number, epochs, new = max(job.trial for job in jobs), plan.rungs[rung], list[TrialJob]()
        for _ in range(len(stopped) if best else 0):
            trial = number + 1 + len(new)
            chance = self._chance(trial)
            for _ in range(_MOST_DRAWS):
                source = results_by_trial[chance.choice(best)][0]
                params = self.change(source.params, source.epochs, chance)
                if all(params != job.params for job in new):  # else both would be one training
                    new.append(TrialJob(trial, params, epochs, rung, ForkPoint(source.trial, source.epochs)))
                    break
        going_on = [job for trial, (job, _) in sorted(results_by_trial.items()) if trial not in stopped]
        return [*new, *(TrialJob(job.trial, job.params, epochs, rung, job.fork) for job in going_on)]

    def _compare(self, plan: SearchPlan, scores: Mapping[int, TrialScore]) -> tuple[list[int], set[int]]:
        """The trials that are the best, and those that are stopped: as many of the worst, and all that have failed."""
        ranks = {trial: rank(score.newest, plan.direction) for trial, score in scores.items()}
        ranked = sorted(ranks, key=lambda trial: (ranks[trial], trial))
        count = min(ceil(round(self.quantile * len(ranked), 9)), len(ranked) // 2)
        best = [trial for trial in ranked[: max(count, 1)] if ranks[trial] < inf]
        failed = {trial for trial, score in scores.items() if score.value is None}
        lasting = {*best, *((1,) if plan.first is not None else ())}
        worst = [trial for trial in reversed(ranked) if trial not in failed and trial not in lasting]
        return best, failed | set(worst[: max(0, count - len(failed))] if best else ())

    def _chance(self, trial: int) -> Random:
        """The source of all that is left to chance in a new trial."""
        return Random(int.from_bytes(sha256(f"{self.seed} change {trial}".encode()).digest()[:8], "big"))

    def change(self, params: Params, after_epoch: int, chance: Random) -> Params:
        """The parameters with one change more: of every setting that changes, unless it is at an end of its range."""
        changes: list[dict[str, Any]] = list(params.get(CHANGES, ()))
        present = {name: params[f"train.{name}"] for name in self.space}
        for change in changes:
            present |= {name: change[name] for name in self.space if name in change}
        values = present
        for _ in range(_MOST_DRAWS):
            values = {name: self._draw_value(dimension, present[name], chance) for name, dimension in self.space.items()}
            if values != present:
                break
        changed = {name: value for name, value in values.items() if value != present[name]}
        return {**params, CHANGES: [*changes, {"after_epoch": after_epoch, **(changed or values)}]}

    def _draw_value(self, dimension: Dimension, value: float, chance: Random) -> float:
        """Another value of a setting, within its range: of a choice a neighbour, which is the next smaller or greater one."""
        is_drawn, is_more, share = chance.random() < self.resample, chance.random() < 0.5, chance.random()
        if dimension.choice is not None:
            choices = sorted(dimension.choice, key=float)
            place = choices.index(value) + (1 if is_more else -1)
            return choices[int(share * len(choices))] if is_drawn else choices[min(max(place, 0), len(choices) - 1)]
        low, high = dimension.bounds or (value, value)
        if not is_drawn:
            return round_parameter(dimension, value * FACTORS[is_more])
        if dimension.log is not None:
            return round_parameter(dimension, exp(log(low) + share * (log(high) - log(low))))
        return round_parameter(dimension, low + share * (high - low))


def create_population(config: Config) -> Population:
    """The population of a search whose scheduler is `pbt`."""
    settings = config.tune.scheduler
    return Population(_changing_space(config), settings.quantile, settings.resample, config.tune.seed)


def population_size(settings: Tune) -> int:
    """The number of first members: as many as there are trials, or combinations of values in the space if these are fewer."""
    return min(settings.trials, prod(len(grid_values(dimension)) or settings.trials for dimension in settings.space.values()))


def comparison_epochs(epochs: int, interval_epochs: int) -> tuple[int, ...]:
    """The epochs after which members are compared, and those of the whole training last."""
    return (*range(interval_epochs, epochs, interval_epochs), epochs)


def round_starts(jobs: Sequence[TrialJob]) -> list[int]:
    """The index of the first job of each round."""
    return [index for index, job in enumerate(jobs) if index == 0 or job.rung > jobs[index - 1].rung]


def population_faults(config: Config) -> Iterator[str]:
    """Why a population cannot be trained as the config has it, each with a remedy."""
    settings, train = config.tune, config.train
    interval = settings.scheduler.interval_epochs
    if not _changing_space(config):
        names = " nor ".join(f"train.{name}" for name in CHANGEABLE)
        yield (
            f"tune.scheduler is pbt, which changes settings during a training, but neither {names} has several values in tune.space; add "
            "one, such as train.lr: {log: [1e-4, 1e-1]}, or set tune.scheduler to asha"
        )
    if settings.trials < 2:
        yield f"tune.trials is {settings.trials}, and a population has two members or more; raise it"
    if interval >= train.epochs:
        yield (
            f"tune.scheduler.interval_epochs is {interval}, and a trial has {train.epochs} epochs, so that nothing would change; lower it, "
            "or raise train.epochs"
        )
    yield from _faults_of_budget(config)
    if train.changes or CHANGES in settings.space:
        yield f"{CHANGES} is given, but tune.scheduler is pbt, which decides changes itself; remove one of them"
    if train.early_stopping is not None or "train.early_stopping" in settings.space:
        yield (
            "train.early_stopping is given, but tune.scheduler is pbt, whose members go on with other settings; set it to null, or "
            "tune.scheduler to asha"
        )
    if train.max_steps is not None:
        yield (
            f"train.max_steps is {train.max_steps}, but tune.scheduler is pbt, which changes settings after whole epochs; set it to null, "
            "or tune.scheduler to asha"
        )
    if not train.strategy.takes_changes and not config.task.needs_own_strategy:
        kinds = " or ".join(strategy_kinds_with("takes_changes"))
        yield f"tune.scheduler is pbt, and strategy {train.strategy.kind} changes nothing during a training; set train.strategy to {kinds}"


def _faults_of_budget(config: Config) -> Iterator[str]:
    """That the budget ends before the second round does, the first with changes."""
    settings, size = config.tune, population_size(config.tune)
    epochs = comparison_epochs(config.train.epochs, settings.scheduler.interval_epochs)[:2][-1]
    if isinstance(settings.budget, int) and settings.budget < size * epochs:
        fewer = settings.budget // epochs
        remedy = f"raise it to {size * epochs}" + (f", or lower tune.trials to {fewer}" if fewer > 1 else "")
        yield f"tune.budget is {settings.budget} epochs, in which a population of {size} has no two rounds, and nothing changes; {remedy}"


def _first_params(plan: SearchPlan, propose: Propose, jobs: Sequence[TrialJob]) -> Params | None:
    """The parameters of one more first member, which none of `jobs` has; None if no proposal has others. A proposal has the number of the
    member, or if others have it already, a number beyond those of all members."""
    for draw in range(_MOST_PROPOSALS):
        params = propose(len(jobs) + 1 + draw * plan.trials, ())
        if params is None or all(params != job.params for job in jobs):
            return params
    return None


def _changing_space(config: Config) -> dict[str, Dimension]:
    """The settings of `train` that may change during a training, and have several values in the space."""
    space = {name: config.tune.space.get(f"train.{name}") for name in sorted(CHANGEABLE)}
    return {name: dimension for name, dimension in space.items() if dimension and (dimension.choice is None or len(dimension.choice) > 1)}
