"""`tune`: which settings `jobs/tune.py` searches, and how."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from pipelines.config.durations import duration_seconds
from pipelines.config.effects import OnlyWith
from pipelines.config.section import Fraction, Section, Seed, Text, expand_kind
from pipelines.config.train.base import FOR_EVERY_TASK


class Dimension(Section):
    """The values that one setting may take in a search: one of these four."""

    choice: tuple[Any, ...] | None = None
    """Any of these values."""
    uniform: tuple[float, float] | None = None
    """A number between these two, each as likely as any other."""
    log: tuple[float, float] | None = None
    """A number between these two, each order of magnitude as likely as any other; both are above 0."""
    integers: Annotated[tuple[int, int] | None, Field(alias="int")] = None
    """A whole number from the first to the last."""

    @model_validator(mode="after")
    def _is_one_range(self) -> "Dimension":
        kinds = {"choice": self.choice, "uniform": self.uniform, "log": self.log, "int": self.integers}
        kinds_used = [name for name, values in kinds.items() if values is not None]
        if len(kinds_used) != 1:
            raise ValueError(f"has {' and '.join(kinds_used) or 'no kind of range'}; give it one of {', '.join(kinds)}")
        if self.choice is not None and not self.choice:
            raise ValueError("choice is empty; list the values to choose from")
        if self.choice is not None and len({repr(value) for value in self.choice}) < len(self.choice):
            raise ValueError("choice has a value twice; list each once")
        if (bounds := self.bounds) is not None:
            self._check_bounds(kinds_used[0], *bounds)
        return self

    @staticmethod
    def _check_bounds(kind: str, low: float, high: float) -> None:
        if kind == "log" and low <= 0:
            raise ValueError(f"log begins at {low:g}, and only numbers above 0 have a logarithm; raise it, or use uniform")
        if low >= high:
            raise ValueError(f"{kind} is {[low, high]}; write the smaller number first, and another one second")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest number; None for a choice."""
        return self.uniform or self.log or self.integers


def around(value: float, factor: float = 10.0) -> Dimension:
    """The numbers around a value above 0, from a `factor` below it to one above, each order of magnitude as likely as any other."""
    low, high = (float(f"{bound:.3g}") for bound in (value / factor, value * factor))
    return Dimension(log=(low, high))


class Scheduler(Section):
    """Which trials are trained further. The name of a kind alone is short for its defaults: `scheduler: none`."""

    kind: Literal["asha", "none", "pbt"] = "asha"
    """`asha` trains all trials for a few epochs, and the best of them for more (asynchronous successive halving, Li et al. 2020); `none`
    trains each for all `train.epochs`; `pbt` trains a population, whose worst members are replaced by others that go on from the best with
    another learning rate or weight decay (population based training, Jaderberg et al. 2017)."""
    min_epochs: Annotated[PositiveInt, OnlyWith(".kind", ("asha",))] = 1
    """Epochs of every trial."""
    reduction: Annotated[int, Field(ge=2), OnlyWith(".kind", ("asha",))] = 3
    """One in so many trials is trained further, for so many times the epochs."""
    interval_epochs: Annotated[PositiveInt, OnlyWith(".kind", ("pbt",))] = 1
    """Epochs after which all members of the population are compared, again and again."""
    quantile: Annotated[float, Field(gt=0, le=0.5), OnlyWith(".kind", ("pbt",))] = 0.25
    """Share of the population that is stopped then. Each is replaced by one of as many best, which goes on with a change."""
    resample: Annotated[Fraction, OnlyWith(".kind", ("pbt",))] = 0.25
    """Share of changes whose value is drawn from the space anew; all others are the value before, times 0.8 or 1.25."""


def _parse_budget(value: Any) -> Any:
    """A text with a unit of time as seconds; any other value as it is, which the setting's type refuses unless it is a number of epochs."""
    if not isinstance(value, str):
        return value
    if duration_seconds(value) is None or not value.strip()[-1].isalpha():
        raise ValueError("must be a time such as 90s, 10m or 2h, or a whole number of epochs of all trials together")
    return value.strip()


def _check_budget(value: str | int | None) -> str | int | None:
    if isinstance(value, str) and (budget_seconds(value) or 0) < 1:
        raise ValueError(f"is {value}, in which no trial can be trained; give it at least 1s")
    return value


def _check_combine(value: int) -> int:
    if value == 1:
        raise ValueError("is 1, and an average is of two models or more; give it 2 or more, or 0 for none")
    return value


def budget_seconds(budget: str | int | None) -> float | None:
    """The seconds of a budget that is a time; None for one of epochs, or for none."""
    return duration_seconds(budget) if isinstance(budget, str) else None


class Alternative(Section):
    """Another model for the same data, such as trees beside a network."""

    task: Annotated[dict[str, Any], BeforeValidator(expand_kind)]
    """Its section `task`, or the name of a kind."""
    train: dict[str, Any] = {}
    """Its section `train`. Settings of where a training runs are those of the config, and so are `seed`, `shards`, `fold` and `monitor`."""

    @model_validator(mode="after")
    def _runs_where_the_search_does(self) -> "Alternative":
        if shared := sorted(FOR_EVERY_TASK & self.train.keys()):
            raise ValueError(
                f"train has {', '.join(shared)}, which all models of a search have from the config; remove it, or set it there"
            )
        return self


_LEARNS_WITHOUT_POPULATION = OnlyWith(
    ".scheduler",
    fits=lambda scheduler, _: scheduler.kind != "pbt",
    remedy="set tune.proposer to random or grid",
    values=("tpe",),
)


class Tune(Section):
    """A search for good settings. It decides no model by itself: a trial is an ordinary training."""

    space: dict[Text, Dimension] = {}
    """The values to try, by the dotted name of a setting of `task`, `train` or `dataset.features`, as in
    `{train.lr: {log: [1e-4, 1e-1]}}`."""
    metric: str = ""
    """Validation metric to optimise; by default the one that selects the best epoch, `train.monitor`."""
    trials: PositiveInt = 30
    """Number of trials. More of them begin with the same ones. With `pbt`, those that it begins with, the population."""
    budget: Annotated[str | PositiveInt | None, AfterValidator(_check_budget), BeforeValidator(_parse_budget)] = None
    """When no further work begins: a time such as 10m, or a number of epochs of all trials together. Trials under way are completed."""
    scheduler: Annotated[Scheduler, BeforeValidator(expand_kind)] = Scheduler()
    """Which trials are trained further: asha, none, pbt, or a section with its settings."""
    proposer: Annotated[Literal["tpe", "random", "grid"], _LEARNS_WITHOUT_POPULATION] = "tpe"
    """How a trial is proposed: `tpe` learns from results (tree-structured Parzen estimator, Bergstra et al. 2011), `random` does not, and
    `grid` goes through all combinations of choices and whole numbers in their order. A population, which begins before there are any
    results, is random unless this is `grid`."""
    seed: Seed = 0
    """Seed of the proposals."""
    parallel: PositiveInt = 4
    """Most trials under way at once. What is tried next follows from all results but those of the last `parallel` - 1 pieces of work, so
    that it does not depend on which is done first; another number makes another search."""
    workers: PositiveInt | None = None
    """Workers of each trial, and of the trainings at the end; by default `train.workers`. With one, trials run side by side, in processes
    that are used again."""
    alternatives: tuple[Alternative, ...] = ()
    """Models of other kinds, each trained to the end once, after the trials. If one is better on validation than the best trial, it is the
    result of the search."""
    combine: Annotated[int, Field(ge=0), AfterValidator(_check_combine)] = 0
    """Best trials, of those that were trained to the end, whose models are averaged with those of the fresh seeds and of the alternatives:
    the validation split decides which count, and how much. 0 for no such model."""
    final_seeds: Annotated[int, Field(ge=0)] = 3
    """Fresh seeds with which the winner is trained at the end, for figures that the search has not chosen; 0 for none."""
