"""Fits a task's trivial predictors, and measures them on the rows of a split beside the model; remarks on
the result of a finished training.

Rank 0 fits them for all workers. Rows, where predictors need them, are a bounded number of row groups, spread evenly over the training
split: the same ones for any number of workers.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import torch

from pipelines.config.train.train import Train
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError
from pipelines.tasks.base import Batch, Monitor, Task
from pipelines.tasks.metrics.table import Value
from pipelines.tasks.trivial import TrivialPredictor
from pipelines.train.workers import broadcast_from_rank0

log = logging.getLogger(__name__)

FIT_BYTES = 64 * 2**20
"""Decoded bytes of the training split that predictors are fitted on, approximately; a smaller split is read whole."""

LEAST_EPOCHS_OF_A_CURVE = 4
STILL_RISING, STILL_RISING_AS_RATE_FALLS = 0.01, 0.1
"""Shares of what a run has gained that its last quarter brings if it was too short."""
Baseline = dict[str, tuple[float, str]]
"""The best value of each metric, as `<split>/<metric>`, and the predictor that has it."""


def fit_trivial_predictors(task: Task, version: Version, rank: int) -> list[TrivialPredictor]:
    """Fit the task's trivial predictors; returns none if one cannot be fitted, which fails no training. Collective."""
    return broadcast_from_rank0(_fit(task, version) if rank == 0 else [])


def _fit(task: Task, version: Version) -> list[TrivialPredictor]:
    try:
        predictors = list(task.trivial_predictors())
        if any(predictor.reads_rows for predictor in predictors):
            for batch in _rows(version):
                for predictor in predictors:
                    predictor.fit(batch)
        for predictor in predictors:
            predictor.finish()
    except LockstepError:
        raise
    except Exception as error:  # of a user's task
        warn_no_baseline(error)
        return []
    return predictors


def warn_no_baseline(error: Exception) -> None:
    log.warning("the run has no baseline to compare with: %s: %s", type(error).__name__, error)


def _rows(version: Version) -> Iterator[Batch]:
    reader = Reader(version, "train")
    count = len(reader.groups)
    largest = int(reader.group_rows.max()) * reader.row_bytes
    groups = min(count, max(1, FIT_BYTES // max(largest, 1)))
    for number in (place * count // groups for place in range(groups)):
        yield {name: torch.from_numpy(values.copy()) for name, values in reader.read(number).items()}


def best_baseline(task: Task, predictors: Sequence[TrivialPredictor], values: Sequence[Mapping[str, Value]], split: str) -> Baseline:
    """The best value of each metric that some predictor stands for."""
    best: Baseline = {}
    for name in map(str, task.metrics()):
        candidates = [
            (value, predictor.name)
            for predictor, measured in zip(predictors, values, strict=True)
            if (name in predictor.stands_for or not predictor.stands_for) and isinstance(value := measured.get(name), float)
        ]
        if candidates:
            best[f"{split}/{name}"] = min(candidates, key=lambda candidate: candidate[0] * _sign(task, name))
    return best


def _sign(task: Task, name: str) -> int:
    """1 if lower values of the metric are better, −1 if higher ones are."""
    if name == task.monitor[0]:
        return 1 if task.monitor[1] == "min" else -1
    return -1 if task.metrics()[name].higher_is_better and name != task.minimised else 1


def remarks(metrics: Mapping[str, Value], baseline: Baseline, monitor: Monitor, minimised: str) -> list[str]:
    """Sentences on a result. `metrics` are those of the best epoch, as `<split>/<metric>`; `baseline` those of the trivial predictors."""
    return _monitor_remarks(metrics, monitor[0], minimised) + baseline_remarks(metrics, baseline, monitor, minimised)


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


def _monitor_remarks(metrics: Mapping[str, Value], monitor: str, minimised: str) -> list[str]:
    """Name the metric that chose the best epoch if the monitored one is undefined."""
    reason = metrics.get(f"validation/{monitor}")
    if not isinstance(reason, str):
        return []
    loss = metrics.get(f"validation/{minimised}")
    chosen = "so no epoch is better than the first" if isinstance(loss, str) else f"so the best epoch is that of the lowest {minimised}"
    return [f"validation {monitor} is undefined: {reason}; {chosen}"]
