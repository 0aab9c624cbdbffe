"""Proposes the settings of a trial: a pure function of the search's seed, the trial's number and the results that it may see.

Optuna's samplers keep state between proposals; here each proposal has a sampler of its own, seeded from seed and number, over a study that
is built anew from the results. Numbers have PARAMETER_DIGITS significant digits, as a YAML file shows them, so that a trial is a training
that can be repeated by hand.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain, islice, product
from typing import Any

from pipelines.config.tuning import Dimension, Tune
from pipelines.tuning.search import Params, Propose, SearchPlan, SeenTrial, rank

PARAMETER_DIGITS = 4
"""Significant digits of proposed numbers."""
STARTUP_TRIALS = 10
"""Trials that are proposed at random before `tpe` has enough results to learn from."""


def proposer(settings: Tune, plan: SearchPlan) -> Propose:
    """The function that proposes trials, of which `plan.first` is the first. That of a grid has no trial after the last combination."""

    def propose(number: int, trials: Sequence[SeenTrial]) -> Params | None:
        if settings.proposer == "grid":
            return _grid_point(settings.space, number, plan.first)
        return plan.first if number == 1 and plan.first is not None else _sample(settings, plan, number, trials)

    return propose


def grid_values(dimension: Dimension) -> Sequence[Any]:
    """The values of a choice or of whole numbers; none of a range, which has no end of them."""
    if dimension.choice is not None:
        return dimension.choice
    return range(dimension.integers[0], dimension.integers[1] + 1) if dimension.integers else ()


def _grid_point(space: Mapping[str, Dimension], number: int, first: Params | None) -> Params | None:
    """The combination of this number: `first`, if it is given, and then all others in their order."""
    combinations = (dict(zip(space, values, strict=True)) for values in product(*(grid_values(dimension) for dimension in space.values())))
    others = (params for params in combinations if params != first)
    return next(islice(chain([] if first is None else [first], others), number - 1, None), None)


def _sample(settings: Tune, plan: SearchPlan, number: int, trials: Sequence[SeenTrial]) -> Params:
    import optuna  # noqa: PLC0415, it takes a second

    optuna.logging.set_verbosity(logging.WARNING)
    seed = int.from_bytes(sha256(f"{settings.seed} {number}".encode()).digest()[:4], "big")
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        if settings.proposer == "random":
            sampler: Any = optuna.samplers.RandomSampler(seed=seed)
        else:
            sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed)
    distributions = {name: _distribution(settings.space[name]) for name in sorted(settings.space)}  # their order in a file decides nothing
    study = optuna.create_study(sampler=sampler, direction="minimize")
    if settings.proposer == "tpe":
        study.add_trials([_frozen(settings.space, plan, distributions, trial) for trial in trials])
    sampled = study.ask(distributions).params
    return {name: _setting_value(settings.space[name], value) for name, value in sampled.items()}


def _distribution(dimension: Dimension) -> Any:
    from optuna import distributions  # noqa: PLC0415, as above

    if dimension.choice is not None:
        return distributions.CategoricalDistribution(range(len(dimension.choice)))  # by place, since a value may be a list
    if dimension.integers is not None:
        return distributions.IntDistribution(*dimension.integers)
    assert dimension.bounds is not None, "a dimension is one of four"
    return distributions.FloatDistribution(*dimension.bounds, log=dimension.log is not None)


def _frozen(space: Mapping[str, Dimension], plan: SearchPlan, distributions: Mapping[str, Any], trial: SeenTrial) -> Any:
    """The trial for Optuna, which ranks complete trials before those that stopped earlier. Its value is our rank, so that equal ones are
    equal there; a failed trial is the worst of those that stopped first."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415, as above

    params = {name: _optuna_value(space[name], value) for name, value in trial.params.items()}
    values = [min(rank(value, plan.direction), _WORST) for value in trial.values]
    common: dict[str, Any] = {"params": params, "distributions": dict(distributions)}
    if not values:
        return create_trial(state=TrialState.RUNNING, **common)
    if len(values) == len(plan.rungs):
        return create_trial(value=values[-1], **common)
    return create_trial(state=TrialState.PRUNED, intermediate_values=dict(zip(plan.rungs, values, strict=False)), **common)


_WORST = 1e300
"""In place of infinity, which Optuna leaves out of account."""


def _optuna_value(dimension: Dimension, value: Any) -> Any:
    return dimension.choice.index(value) if dimension.choice is not None else value


def _setting_value(dimension: Dimension, value: Any) -> Any:
    """The value as it stands in a config: of a number, as many digits as people read, within its bounds."""
    return dimension.choice[value] if dimension.choice is not None else round_parameter(dimension, value)


def round_parameter(dimension: Dimension, value: float) -> float:
    """A number of a range with as many digits as people read, or the nearest one within its bounds."""
    assert dimension.bounds is not None, "a choice has no numbers between its values"
    low, high = dimension.bounds
    rounded = round(value) if dimension.integers is not None else float(f"{value:.{PARAMETER_DIGITS}g}")
    return min(max(rounded, low), high)
