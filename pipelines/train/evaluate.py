"""A split's metrics over all workers, every row exactly once."""

from pipelines.config.train import Train
from pipelines.dataset.versions import Version
from pipelines.loader import Loader, Order
from pipelines.tasks.base import Task
from pipelines.train.place import Place
from pipelines.train.strategy import Strategy

BATCHES_AT_ONCE = 2
"""An evaluation batch has the rows of so many global batches: without gradients it takes less memory than training."""


class Evaluation:
    """A task's metrics on one split of a version; called after every epoch."""

    def __init__(self, settings: Train, version: Version, split: str, task: Task, place: Place) -> None:
        self._split, self._task = split, task
        order = Order(settings.shards, BATCHES_AT_ONCE * settings.global_batch, shuffle=False, remainder="keep")
        self._loader = version.rows(split) and Loader(
            version,
            split,
            order,
            place.plays(settings.shards),
            device=place.device,
            cache_bytes=settings.cache_bytes // 4,
            prefetch_bytes=settings.prefetch_bytes,
        )

    def __call__(self, strategy: Strategy) -> dict[str, float]:
        """Metrics as `<split>/<metric>`, equal for all workers; none for a split without rows. Collective."""
        if not self._loader:
            return {}
        strategy.settle()
        metrics = self._task.metrics()
        for batch in self._loader:
            self._task.update(metrics, strategy.predict(batch), batch)
        return {f"{self._split}/{name}": float(value) for name, value in metrics.compute().items()}
