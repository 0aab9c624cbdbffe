"""Settings of strategy `federated`: clients, rounds, and the mean of their changes. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from pipelines.config.effects import OnlyWith, is_above_0
from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import UnitOfWork, check_not_compiled
from pipelines.errors import ConfigError
from pipelines.strategies.outer_step import OuterStep


class Settings(OuterStep):
    """In every round some clients train the model on their own rows, and their mean change is the round's step. A client's batches have at
    most `global_batch / per_round` rows. Weights are identical bit for bit for any number of workers."""

    implementation = "pipelines.strategies.federated.federated:Federated"
    reproducible = True
    reads_in_order = False
    kind: str = "federated"
    client_column: str = ""
    """Tensor column whose values are the clients: a whole number per row, as from `identity`, `label` or `vocabulary`. A column that
    the model should not see belongs in `dataset.passthrough`."""
    per_round: PositiveInt = 10
    """Clients that take part in a round, drawn by (seed, round). With `noise` it is their expected number."""
    local_epochs: PositiveInt = 5
    """Passes of a client over its rows in a round."""
    rounds_per_epoch: PositiveInt = 1
    """Rounds after which the model is validated; `epochs` counts these."""
    weighting: Literal["rows", "equal"] = "rows"
    """Weight of a client's change in the mean: its number of rows, or the same for all."""
    proximal: NonNegativeFloat = 0.0
    """FedProx: half of this factor times the squared distance from the round's start is added to a client's loss."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """Maximum norm of a client's change; a larger one is scaled down to it."""
    noise: NonNegativeFloat = 0.0
    """Differential privacy: standard deviation of the Gaussian noise on the sum of the clients' changes, in units of `clip`."""
    delta: Annotated[float, Field(gt=0, lt=1), OnlyWith(".noise", fits=is_above_0, remedy="set train.strategy.noise, as to 1.0")] = 1e-5
    """Delta of the guarantee (epsilon, delta) whose epsilon is logged; less than 1 / clients."""

    def check(self, train: Training) -> None:
        if not self.client_column:
            raise ValueError("strategy is federated, but strategy.client_column is not set; name the column whose values are the clients")
        if train.global_batch % self.per_round:
            raise ValueError(
                f"global_batch is {train.global_batch}; it must be a multiple of {self.per_round}, strategy.per_round: a client's batch is "
                "an equal part"
            )
        if train.max_workers > self.per_round:
            raise ValueError(
                f"workers is {train.max_workers}; it must be at most {self.per_round}, strategy.per_round; reduce it, or raise that"
            )
        self._check_noise(train)
        if train.precision == "fp16":
            raise ValueError("precision is fp16, whose loss scaling would begin anew with every client; set it to bf16 or fp32")
        check_not_compiled(train, self.kind)
        super().check(train)

    def check_columns(self, encoders: Mapping[str, str], place: str) -> None:
        """Raise ConfigError if `client_column` names none of the columns, or one whose encoder gives different clients the same number; and
        if windows of joined documents are the only column."""
        if len(encoders) == 1:
            raise ConfigError(
                f"train.strategy is federated, but {', '.join(encoders)} is packed into windows, which may hold documents of several "
                "clients; set train.strategy to local_sgd, ddp or exact"
            )
        if self.client_column not in encoders:
            columns = f"it has {name_list(encoders, self.client_column)}"
            raise ConfigError(
                f"train.strategy.client_column is {self.client_column}, which is no tensor column of {place}; "
                f"{suggestion(self.client_column, encoders, columns)}; a column that the model does not see belongs in dataset.passthrough"
            )
        if (encoder := encoders[self.client_column]) in ("hash", "quantile"):
            raise ConfigError(
                f"train.strategy.client_column is {self.client_column}, which the encoder {encoder} makes: different clients get the same "
                "number from it; use label or vocabulary"
            )

    @property
    def needs_secret_seed(self) -> bool:
        return self.noise > 0  # anybody could compute it

    def unit_of_work(self, train: Training) -> UnitOfWork:
        return UnitOfWork("client", self.per_round)

    def steps_per_epoch(self, train: Training) -> int:
        return self.rounds_per_epoch

    def describe_steps(self, train: Training) -> str:
        return f"rounds of {self.per_round} clients"

    def _check_noise(self, train: Training) -> None:
        """Raise ValueError for noise that would not hide a client."""
        if not self.noise:
            return
        if self.clip is None:
            raise ValueError(
                f"strategy.noise is {self.noise:g}, but strategy.clip is not set, which limits what the noise hides; set it, as to 1.0"
            )
        if self.weighting == "rows":
            raise ValueError(
                f"strategy.noise is {self.noise:g} and strategy.weighting is rows, with which no noise hides a large client; set it to "
                "equal"
            )
        if not train.seed:
            raise ValueError(
                f"strategy.noise is {self.noise:g}, but seed is 0, the default, from which anybody can compute the noise; set seed to a "
                "random number, and keep it secret"
            )
