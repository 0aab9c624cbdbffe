"""In which direction each metric of a task is better, for whoever compares runs."""

from typing import Any

from pipelines.tasks.base import Task


def directions(task: Task, monitor: str) -> dict[str, Any]:
    """As JSON values: `monitor`, the metric that chooses the best epoch, and `better`, `higher` or `lower` by metric; a metric that does
    not say is left out. `monitor` is that of the config. Raises ConfigError if there is no such metric."""
    chosen, _ = monitored = task.monitored(monitor)
    known = {name: metric.higher_is_better for name, metric in task.metrics().items()}
    better = {name: "higher" if higher else "lower" for name, higher in known.items() if higher is not None}
    minimised = {task.minimised: "lower"} if task.minimised in known else {}
    return {"monitor": chosen, "better": {**better, **minimised, chosen: "higher" if monitored[1] == "max" else "lower"}}
