"""`train`: how the model is trained, and by which strategy workers share the computation of a step."""

from typing import TypeVar

from pydantic import model_validator

from pipelines.config.train.base import Training
from pipelines.config.train.strategy import DEFAULT_KIND, NamedStrategy, StrategySettings, UnitOfWork
from pipelines.errors import ConfigError

Settings = TypeVar("Settings", bound=StrategySettings)
_PAIRS = "but the task mixes rows with their neighbours, so that each pass needs an even number of rows"


class Train(Training):
    """How the model is trained, on how many workers, and how a run recovers from failures."""

    # Validation turns the kind into its settings.
    strategy: NamedStrategy = DEFAULT_KIND  # type: ignore[assignment]
    """How workers share the computation of a step: a kind, which is short for its defaults, or a section of `kind` and its settings."""

    @property
    def max_readers(self) -> int:
        """Maximum number of workers, or of groups of workers that compute the same rows, between which rows are divided."""
        return self.strategy.readers(self.max_workers)

    @property
    def unit_of_work(self) -> UnitOfWork:
        """The units that workers share, and their number: shards, replicas, or the clients of a round."""
        return self.strategy.unit_of_work(self)

    def strategy_as(self, kind: type[Settings]) -> Settings:
        """The strategy's settings, of that class. Raises ConfigError if they are not derived from it."""
        if not isinstance(self.strategy, kind):
            raise ConfigError(
                f"train.strategy is {self.strategy.kind}, whose implementation needs the settings of {kind.__module__}.{kind.__name__}; "
                "derive its settings from that class"
            )
        return self.strategy

    @model_validator(mode="after")
    def _strategy_fits(self) -> "Train":
        self.strategy.check(self)
        for name in self.strategy.unsupported:
            if getattr(self, name) != type(self).model_fields[name].get_default():
                raise ValueError(
                    f"{name} is given, which strategy {self.strategy.kind} does not support; set strategy to ddp or exact, or remove {name}"
                )
        if self.max_readers > self.shards:
            readers = "" if self.max_readers == self.max_workers else f", of which {self.max_readers} read different rows"
            raise ValueError(f"workers is {self.max_workers}{readers}; it must be at most {self.shards}, the number of shards")
        unit, units = self.unit_of_work
        rows = self.global_batch // units
        if self.grad_accum_steps > rows:
            raise ValueError(
                f"grad_accum_steps is {self.grad_accum_steps}, more than the {rows} rows of a {unit} in a step; reduce it, or raise "
                "global_batch"
            )
        return self


def check_row_pairs(train: Train) -> None:
    """Raise ValueError unless every pass has an even number of rows, so that pairs are the same for any number of workers.

    A strategy that does not read rows in the order of shards divides them alike on any number of workers, and may have odd passes."""
    if not train.strategy.reads_in_order:
        return
    if train.remainder == "keep":
        raise ValueError(f"train.remainder is keep, {_PAIRS}, and an epoch's last step may have an odd one; set it to drop")
    least = 2 * train.grad_accum_steps * train.shards
    if train.global_batch % least:
        raise ValueError(
            f"train.global_batch is {train.global_batch} for {train.shards} shards with grad_accum_steps {train.grad_accum_steps}, "
            f"{_PAIRS}; set it to a multiple of {least}, such as {-(-train.global_batch // least) * least}"
        )
