"""Settings of strategy `exact`. Imports no torch."""

from collections.abc import Iterable

from pipelines.config.train.base import Training
from pipelines.config.train.strategy import FixedThreads


class Settings(FixedThreads):
    """Makes one pass per shard; weights are identical bit for bit for any number of workers."""

    implementation = "pipelines.train.exact.exact:Exact"
    reproducible = True
    balances = True
    averages = True
    takes_changes = True
    kind: str = "exact"

    def blocks_of_shards(self, train: Training) -> Iterable[int]:
        return (train.shards,)

    def rows_per_pass(self, train: Training) -> int:
        return train.global_batch // train.shards // train.grad_accum_steps
