"""A split's metrics over all workers, every row exactly once, and the same for any number of them.

Each shard's rows go through the model by themselves and add to metrics of the shard's own; these are merged in the order
of shards. So which epoch is the best does not depend on who computed what.
"""

from collections.abc import Callable

import torch.distributed as dist
from torchmetrics import MetricCollection

from pipelines.collectives.context import WorkerContext
from pipelines.config.train import Train
from pipelines.dataset.versions import Version
from pipelines.loader import Loader, Order
from pipelines.parallel.mesh import owned_shards
from pipelines.parallel.strategy import Strategy
from pipelines.tasks.base import Task


class Evaluation:
    """A task's metrics on one split of a version; called after every epoch."""

    def __init__(self, settings: Train, version: Version, split: str, task: Task, context: WorkerContext) -> None:
        self._split, self._task, self._context = split, task, context
        # A shard's share of a batch has as many rows as a global batch: without gradients they take less memory.
        order = Order(settings.shards, settings.shards * settings.global_batch, shuffle=False, remainder="keep")
        self._loader = None
        if version.rows(split):
            self._loader = Loader(
                version,
                split,
                order,
                owned_shards(context, settings.shards),
                device=context.device,
                cache_bytes=settings.cache_bytes // 4,
                prefetch_bytes=settings.prefetch_bytes,
            )

    def __call__(self, strategy: Strategy, broken_off: Callable[[], bool] = lambda: False) -> dict[str, float] | None:
        """Metrics as `<split>/<metric>`, equal for all workers; none for a split without rows. Collective.

        None if it was `broken_off` on any worker, which is asked before every batch.
        """
        if self._loader is None:
            return {}
        strategy.sync_buffers()
        shards = [self._task.metrics() for _ in self._loader.plays]
        whole = True
        for batch in self._loader:
            if broken_off():
                whole = False
                break
            for metrics, rows in zip(shards, self._loader.by_shard(batch), strict=True):
                if len(next(iter(rows.values()))):
                    self._task.update(metrics, strategy.predict(rows), rows)
        every = self._gathered(shards if whole else None)
        if None in every:
            return None
        merged = self._merged([metrics for of_worker in every for metrics in of_worker or []])
        return {f"{self._split}/{name}": float(value) for name, value in merged.compute().items()}

    def _gathered(self, own: list[MetricCollection] | None) -> list[list[MetricCollection] | None]:
        """Every worker's own, in the order of workers, on every worker."""
        if self._context.world_size == 1:
            return [own]
        every = [own] * self._context.world_size
        dist.all_gather_object(every, own)
        return every

    def _merged(self, shards: list[MetricCollection]) -> MetricCollection:
        """All shards' metrics as one."""
        merged, *others = shards
        for name, metric in merged.items(keep_base=True, copy_state=False):
            metric.sync_on_compute = False  # every worker has them all
            for other in others:
                metric.merge_state(other[name])
        return merged
