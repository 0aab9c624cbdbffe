"""What a finished training must say of its result beside the numbers."""

from collections.abc import Mapping

from pipelines.tasks.base import Monitor
from pipelines.tasks.values import Value


def remarks(metrics: Mapping[str, Value], monitor: Monitor, minimised: str) -> list[str]:
    """A sentence each. `metrics` are those of the best epoch, as `<split>/<metric>`."""
    return undefined_monitor(metrics, monitor[0], minimised)


def undefined_monitor(metrics: Mapping[str, Value], monitor: str, minimised: str) -> list[str]:
    """Which metric has chosen the best epoch if the monitored one is not defined."""
    reason = metrics.get(f"validation/{monitor}")
    if not isinstance(reason, str):
        return []
    loss = metrics.get(f"validation/{minimised}")
    chosen = "so no epoch is better than the first" if isinstance(loss, str) else f"so the best epoch is that of the lowest {minimised}"
    return [f"validation {monitor} is undefined: {reason}; {chosen}"]
