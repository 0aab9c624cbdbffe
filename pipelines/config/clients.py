"""`train.clients`: whose rows a client has, who takes part in a round, and how their changes are brought together."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from pipelines.config.local_sgd import OuterStep


class Clients(OuterStep):
    """Strategy `federated`: in every round some clients train the model on their own rows, and their mean change is the round's step. A
    client's batches have at most `global_batch / per_round` rows."""

    by: str = ""
    """Tensor column whose values are the clients: a whole number per row, as from `identity`, `label` or `vocabulary`. A column that
    the model should not see belongs in `dataset.carried`."""
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
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Delta of the guarantee (epsilon, delta) whose epsilon is logged; less than 1 / clients."""


def check_clients(settings: Clients, strategy: str, global_batch: int, max_workers: int, precision: str, seed: int) -> None:
    """Raise ValueError for settings that do not fit each other or the rest of `train`."""
    if strategy != "federated":
        return
    per_round = settings.per_round
    if not settings.by:
        raise ValueError("strategy is federated, but clients.by is not set; name the column whose values are the clients")
    if global_batch % per_round:
        raise ValueError(
            f"global_batch is {global_batch}; it must be a multiple of {per_round}, clients.per_round: a client's batch is an equal part"
        )
    if max_workers > per_round:
        raise ValueError(f"workers is {max_workers}; it must be at most {per_round}, clients.per_round; reduce it, or raise that")
    check_noise(settings, seed)
    if precision == "fp16":
        raise ValueError("precision is fp16, whose loss scaling would begin anew with every client; set it to bf16 or fp32")


def check_noise(settings: Clients, seed: int) -> None:
    """Raise ValueError for noise that would not hide a client."""
    if not settings.noise:
        return
    if settings.clip is None:
        raise ValueError(
            f"clients.noise is {settings.noise:g}, but clients.clip is not set, which limits what the noise hides; set it, as to 1.0"
        )
    if settings.weighting == "rows":
        raise ValueError(
            f"clients.noise is {settings.noise:g} and clients.weighting is rows, with which no noise hides a large client; set it to equal"
        )
    if not seed:
        raise ValueError(
            f"clients.noise is {settings.noise:g}, but seed is 0, the default, from which anybody can compute the noise; set seed to a "
            "random number, and keep it secret"
        )
