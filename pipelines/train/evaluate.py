"""Computes a split's metrics over all workers: every row counts exactly once, and any number of workers gives the same values.

The model predicts each shard's rows separately, each shard has its own metrics and details, and these are merged in the order of the
shards. So the best epoch does not depend on the number of workers. A task's trivial predictors, which the model must beat, are measured on
the same rows; and the result of a finished training gets remarks, if it does not beat them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torchmetrics import MetricCollection

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import LockstepError
from pipelines.tasks.base import Batch, Monitor, Task, row_count
from pipelines.tasks.details import Details, EvaluationData, Part
from pipelines.tasks.metrics.table import Value, metric_values
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.train.run_context import Baseline
from pipelines.train.strategy import Strategy
from pipelines.train.workers import all_gather_object, broadcast_from_rank0

log = logging.getLogger(__name__)
FIT_BYTES = 64 * 2**20
"""Decoded bytes of the training split that predictors are fitted on, approximately; a smaller split is read whole."""
LEAST_EPOCHS_OF_A_CURVE = 4
"""Fewer epochs draw no curve, of whose end something could be said."""
STILL_RISING, STILL_RISING_AS_RATE_FALLS = 0.01, 0.1
"""Shares of what a run has gained that its last quarter brings if it was too short."""


@dataclass
class _Shard:
    """Metrics and details of the rows of a shard."""

    metrics: MetricCollection
    details: Details | None
    trivial: list[MetricCollection]
    """Those of the trivial predictors; none after an error."""


class Evaluation:
    """Computes a task's metrics on one split of a version."""

    def __init__(
        self, settings: Train, version: Version, split: str, task: Task, strategy: Strategy, decision: Mapping[str, float] | None = None
    ) -> None:
        """With the `decision` of the model, its metrics and details are those of its predictions."""
        self.split, self._task, self._strategy = split, task.replace_decision(decision or {}), strategy
        self._undecided_task = task
        self._merged_metrics: MetricCollection | None = None
        self._rows, self._monitor = version.rows(split), settings.monitor
        self._shards = settings.shards
        passthrough = task.settings.passthrough
        self._task_columns = [column.name for column in version.columns if column.role != "carried" or column.name in passthrough]
        self.evaluation_data: EvaluationData | None = None
        """The details of the last call, on rank 0; None if there are none."""
        self.trivial: Sequence[TrivialPredictor] = ()
        """Fitted predictors that the next call measures on the same rows, into `baseline`. Alike on all workers."""
        self.baseline: Baseline = {}
        self._is_detailed = True
        """Whether details are collected; false after an error, which would come again: they only make figures, and fail no training."""
        # That of the last evaluation: of the best weights, unless there is no test.
        self._is_explained = task.explains and (split == "test" or not version.rows("test"))
        # A pass has as many rows as one of training on a single worker: without gradients it needs less memory.
        pass_rows = max(1, settings.global_batch // settings.grad_accum_steps)
        order = Order(settings.shards, settings.shards * pass_rows, shuffle=False, remainder="keep")
        self._loader = None
        if self._rows:
            self._loader = Loader(
                include_passthrough(version, (*task.settings.slices, *task.settings.passthrough)),
                split,
                order,
                strategy.mesh.worker_shards(settings.shards),
                row_numbers=True,
                device=strategy.mesh.context.device,
                cache_bytes=settings.cache_bytes // 4,
                prefetch_bytes=settings.prefetch_bytes,
                threads=settings.cpus_per_worker,
            )

    def __call__(self, broken_off: Callable[[], bool] = lambda: False) -> dict[str, Value] | None:
        """Return metrics as `<split>/<metric>`, the same on all workers; an empty dict for a split without rows. Collective.

        Returns None if `broken_off` is true on any worker. It is called before every batch.
        """
        self.evaluation_data = None
        if self._loader is None:
            return {}
        self._strategy.sync_buffers()
        self._loader.assign_shards(self._strategy.mesh.worker_shards(self._shards))
        most_shards = max(map(len, self._strategy.mesh.shards_by_replica(self._shards)))
        shards = [
            _Shard(self._task.metrics(), self._new_details(), [self._task.metrics() for _ in self.trivial])
            for _ in self._loader.owned_shards
        ]
        with self._strategy.average_weights():
            for batch in self._loader:
                if any(all_gather_object(broken_off())):
                    return None
                self._add_batch(self._loader.split_by_shard(batch), shards, most_shards)
        parts = [shard.details.parts if shard.details and self._is_detailed else None for shard in shards]
        results = [(shard.metrics, details, shard.trivial) for shard, details in zip(shards, parts, strict=True)]
        by_worker = all_gather_object(results)
        in_order = [result for rank in self._strategy.mesh.first_ranks for result in by_worker[rank]]
        merged = self._merged_metrics = self._merge_metrics([metrics for metrics, _, _ in in_order])
        # Every worker computes them, and all take those of one: they decide which epoch is the best, and thereby what is saved.
        metrics = broadcast_from_rank0(metric_values(merged))
        if self._strategy.mesh.context.rank == 0:
            self.evaluation_data = self._merge_details([parts for _, parts, _ in in_order], metrics)
        by_shard = [trivial for _, _, trivial in in_order]
        if self.trivial and all(len(trivial) == len(self.trivial) for trivial in by_shard):  # no error has left one without
            values = [metric_values(self._merge_metrics(list(collections))) for collections in zip(*by_shard, strict=True)]
            self.baseline = broadcast_from_rank0(best_baseline(self._task, self.trivial, values, self.split))
        self.trivial = ()
        return {f"{self.split}/{name}": value for name, value in metrics.items()}

    def fit_decision(self) -> dict[str, float]:
        """The task's decision, fitted on the rows of the last call; empty for a split without rows. Alike on all workers. Collective."""
        metrics, is_first = self._merged_metrics, self._strategy.mesh.context.rank == 0
        self._merged_metrics = None
        return broadcast_from_rank0(self._task.fit_decision(metrics) if metrics is not None and is_first else {})

    def close(self) -> None:
        """End the threads that read rows."""
        if self._loader is not None:
            self._loader.close()

    def _add_batch(self, microbatches: list[Batch], shards: list[_Shard], most_shards: int) -> None:
        """Add each shard's rows to its metrics. Prediction is collective, so every worker predicts the same number of batches."""
        for number in range(most_shards):
            owned = number < len(microbatches)
            rows = microbatches[number] if owned else {name: values[:0] for name, values in microbatches[0].items()}
            inputs = {name: rows[name] for name in self._task_columns}
            output = self._strategy.predict(inputs)
            if not row_count(rows):
                continue
            shard, output = shards[number], output.detach().cpu()
            self._task.update(shard.metrics, output, inputs)
            try:
                for metrics, predictor in zip(shard.trivial, self.trivial, strict=False):
                    self._undecided_task.update(metrics, predictor.output(inputs), inputs)
            except Exception as error:  # of a task of one's own
                shard.trivial = []
                warn_no_baseline(error)
            if shard.details is not None and self._is_detailed:
                try:
                    shard.details.update(output, rows)
                except Exception as error:
                    self._give_up(error)

    def _new_details(self) -> Details | None:
        if self._is_detailed:
            try:
                details = self._task.details()
                if details is not None:
                    details.expect(self._rows)
                    details.keeps_inputs = self._is_explained
                return details
            except Exception as error:
                self._give_up(error)
        return None

    def _merge_details(self, parts: list[list[Part] | None], metrics: dict[str, Value]) -> EvaluationData | None:
        details = self._new_details()
        if details is None or None in parts:
            return None
        try:
            for shard in parts:
                details.merge(shard or [])
            inputs = details.worst_inputs
            with self._strategy.average_weights():
                explanation = self._strategy.explain(inputs) if inputs else None
            return details.result(self.split, metrics, self._task.describe_metrics(self._monitor), explanation)
        except Exception as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self._is_detailed = False
        log.warning("the run has no figures of its %s split: %s: %s", self.split, type(error).__name__, error)

    def _merge_metrics(self, shards: list[MetricCollection]) -> MetricCollection:
        merged, *remaining = shards
        for name, metric in merged.items(keep_base=True, copy_state=False):
            # Every worker already has the metrics of all shards. `sync_on_compute` counts only when a metric is created.
            metric.distributed_available_fn = lambda: False
            for other in remaining:
                metric.merge_state(other[name])
        return merged


def fit_trivial_predictors(task: Task, version: Version, rank: int) -> list[TrivialPredictor]:
    """Fit the task's trivial predictors; returns none if one cannot be fitted, which fails no training. Collective.

    Rank 0 fits them for all workers. Rows, where predictors need them, are a bounded number of row groups, spread evenly over the training
    split: the same ones for any number of workers.
    """
    predictors: list[TrivialPredictor] = []
    if rank == 0:
        try:
            predictors = list(task.trivial_predictors())
            if any(predictor.reads_rows for predictor in predictors):
                for batch in _sample_of_rows(version):
                    for predictor in predictors:
                        predictor.fit(batch)
            for predictor in predictors:
                predictor.finish()
        except LockstepError:
            raise
        except Exception as error:  # of a user's task
            warn_no_baseline(error)
            predictors = []
    return broadcast_from_rank0(predictors)


def warn_no_baseline(error: Exception) -> None:
    log.warning("the run has no baseline to compare with: %s: %s", type(error).__name__, error)


def _sample_of_rows(version: Version) -> Iterator[Batch]:
    reader = Reader(version, "train")
    count = len(reader.groups)
    largest = int(reader.group_rows.max()) * reader.row_bytes
    groups = min(count, max(1, FIT_BYTES // max(largest, 1)))
    for number in (place * count // groups for place in range(groups)):
        yield {name: torch.from_numpy(values.copy()) for name, values in reader.read(number).items()}


def best_baseline(task: Task, predictors: Sequence[TrivialPredictor], values: Sequence[Mapping[str, Value]], split: str) -> Baseline:
    """The best value of each metric that some predictor stands for."""
    best: Baseline = {}
    metrics, (monitored, direction) = task.metrics(), task.monitor
    for name in map(str, metrics):
        candidates = [
            (value, predictor.name)
            for predictor, measured in zip(predictors, values, strict=True)
            if (name in predictor.stands_for or not predictor.stands_for) and isinstance(value := measured.get(name), float)
        ]
        is_higher_better = direction != "min" if name == monitored else metrics[name].higher_is_better and name != task.minimised
        if candidates:
            choose = max if is_higher_better else min
            best[f"{split}/{name}"] = choose(candidates, key=lambda candidate: candidate[0])
    return best


def remarks(metrics: Mapping[str, Value], baseline: Baseline, monitor: Monitor, minimised: str) -> list[str]:
    """Sentences on a result. `metrics` are those of the best epoch, as `<split>/<metric>`; `baseline` those of the trivial predictors."""
    lines, reason, loss = [], metrics.get(f"validation/{monitor[0]}"), metrics.get(f"validation/{minimised}")
    if isinstance(reason, str):
        chosen = "so no epoch is better than the first" if isinstance(loss, str) else f"so the best epoch is that of the lowest {minimised}"
        lines.append(f"validation {monitor[0]} is undefined: {reason}; {chosen}")
    return lines + baseline_remarks(metrics, baseline, monitor, minimised)


def baseline_remarks(metrics: Mapping[str, Value], baseline: Baseline, monitor: Monitor, minimised: str) -> list[str]:
    """Name the trivial predictor that the model does not beat, on each split: by the monitored metric, or else by the loss."""
    lines = []
    for split in ("validation", "test"):
        for name, direction in (monitor, (minimised, "min")):
            value, (bar, predictor) = metrics.get(f"{split}/{name}"), baseline.get(f"{split}/{name}", (None, ""))
            if isinstance(value, float) and bar is not None:
                if not (value > bar if direction == "max" else value < bar):
                    lines.append(f"{split} {name} {value:.4g} does not beat the trivial predictor ({predictor}), which has {bar:.4g}")
                break
    return lines


def curve_remarks(curve: Sequence[float], epochs: int, best_epoch: int, settings: Train, monitor: Monitor) -> list[str]:
    """Say that more epochs may help if the best epoch is the last, and the `curve` of the monitored metric still rises: if the last quarter
    of the epochs has brought more than a hundredth of all that was gained, or a tenth where the rate falls towards the end, which improves
    every model. Nothing is said of fewer than four epochs, which draw no curve."""
    name, direction = monitor
    gains = [value if direction == "max" else -value for value in curve]
    if best_epoch < epochs or len(gains) < max(epochs, LEAST_EPOCHS_OF_A_CURVE):
        return []
    before = max(gains[: -(-3 * epochs // 4)])
    recent, total = gains[-1] - before, gains[-1] - min(gains)
    falls = settings.schedule in ("cosine", "one_cycle")
    if not total or recent <= (STILL_RISING_AS_RATE_FALLS if falls else STILL_RISING) * total:
        return []
    remedy = "train.max_steps" if settings.max_steps and epochs < settings.epochs else f"train.epochs, as to {2 * epochs}"
    share = f"{100 * recent / total:.0f} % of what validation {name} gained"
    return [
        f"the best epoch is the last of {epochs}, and the last quarter of them brought {share}: longer training may help; raise {remedy}"
    ]
