"""Computes a split's metrics over all workers: every row counts exactly once, and any number of workers gives the same values.

The model predicts each shard's rows separately, each shard has its own metrics, and these are merged in the order of the
shards. So the best epoch does not depend on the number of workers.
"""

from collections.abc import Callable

from torchmetrics import MetricCollection

from pipelines.collectives.agree import gathered
from pipelines.config.train import Train
from pipelines.dataset.versions import Version
from pipelines.loader import Loader, Order
from pipelines.parallel.strategy import Strategy
from pipelines.tasks.base import Batch, Task, rows_of


class Evaluation:
    """Computes a task's metrics on one split of a version."""

    def __init__(self, settings: Train, version: Version, split: str, task: Task, strategy: Strategy) -> None:
        self._split, self._task, self._strategy = split, task, strategy
        self._shards = settings.shards
        # Each shard's microbatch is as large as a global batch: prediction without gradients needs less memory.
        order = Order(settings.shards, settings.shards * settings.global_batch, shuffle=False, remainder="keep")
        self._loader = None
        if version.rows(split):
            self._loader = Loader(
                version,
                split,
                order,
                strategy.mesh.owned_shards(settings.shards),
                device=strategy.mesh.context.device,
                cache_bytes=settings.cache_bytes // 4,
                prefetch_bytes=settings.prefetch_bytes,
            )

    def __call__(self, broken_off: Callable[[], bool] = lambda: False) -> dict[str, float] | None:
        """Return metrics as `<split>/<metric>`, the same on all workers; an empty dict for a split without rows. Collective.

        Returns None if `broken_off` is true on any worker. It is called before every batch.
        """
        if self._loader is None:
            return {}
        self._strategy.sync_buffers()
        self._loader.own(self._strategy.mesh.owned_shards(self._shards))
        most_shards = max(map(len, self._strategy.mesh.shards_by_replica(self._shards)))
        shards = [self._task.metrics() for _ in self._loader.owned_shards]
        for batch in self._loader:
            if any(gathered(broken_off())):
                return None
            self._add(self._loader.by_shard(batch), shards, most_shards)
        by_worker = gathered(shards)
        merged = self._merged([metrics for rank in self._strategy.mesh.first_ranks for metrics in by_worker[rank]])
        return {f"{self._split}/{name}": float(value) for name, value in merged.compute().items()}

    def _add(self, microbatches: list[Batch], shards: list[MetricCollection], most_shards: int) -> None:
        """Add each shard's rows to its metrics. Prediction is collective, so every worker predicts the same number of batches."""
        for number in range(most_shards):
            owned = number < len(microbatches)
            rows = microbatches[number] if owned else {name: values[:0] for name, values in microbatches[0].items()}
            output = self._strategy.predict(rows)
            if rows_of(rows):
                self._task.update(shards[number], output, rows)

    def _merged(self, shards: list[MetricCollection]) -> MetricCollection:
        """Merge the shards' metrics into one collection."""
        merged, *others = shards
        for name, metric in merged.items(keep_base=True, copy_state=False):
            # Every worker already has the metrics of all shards. `sync_on_compute` counts only when a metric is created.
            metric.distributed_available_fn = lambda: False
            for other in others:
                metric.merge_state(other[name])
        return merged
