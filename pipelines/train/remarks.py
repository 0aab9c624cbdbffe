"""Remarks on the result of a finished training, in words."""

from collections.abc import Mapping

from pipelines.tasks.base import Monitor
from pipelines.tasks.values import Value
from pipelines.train.trivial import Baseline


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


def _monitor_remarks(metrics: Mapping[str, Value], monitor: str, minimised: str) -> list[str]:
    """Name the metric that chose the best epoch if the monitored one is undefined."""
    reason = metrics.get(f"validation/{monitor}")
    if not isinstance(reason, str):
        return []
    loss = metrics.get(f"validation/{minimised}")
    chosen = "so no epoch is better than the first" if isinstance(loss, str) else f"so the best epoch is that of the lowest {minimised}"
    return [f"validation {monitor} is undefined: {reason}; {chosen}"]
