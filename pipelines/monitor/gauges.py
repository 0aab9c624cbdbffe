"""Numbers of a training for Prometheus: Ray's agent on each machine exports them, with `ray_` before their names."""

from collections.abc import Mapping

from ray.util.metrics import Gauge

GAUGES = {
    "train/loss": ("lockstep_train_loss", "Loss of the training split since the last point"),
    "train/rows_per_second": ("lockstep_train_rows_per_second", "Rows trained on in a second, by all workers"),
    "train/step_seconds": ("lockstep_train_step_seconds", "Seconds of a step"),
    "train/data_wait_fraction": ("lockstep_train_data_wait_fraction", "Share of the time in which workers wait for data"),
}
"""By MLflow's name of the metric: the gauge, and what it is."""
STEP, STEPS = "lockstep_train_step", "lockstep_train_steps"


class Gauges:
    """The gauges of one run, set by its rank 0; they end with its process."""

    def __init__(self, pipeline: str, run_id: str, total_steps: int) -> None:
        self._tags = {"pipeline": pipeline, "run": run_id}
        keys = tuple(self._tags)
        self._gauges = {metric: Gauge(name, text, keys) for metric, (name, text) in GAUGES.items()}
        self._step = Gauge(STEP, "Steps of the run that are done", keys)
        self._step.set(0, self._tags)
        Gauge(STEPS, "Steps of the run in all", keys).set(total_steps, self._tags)

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step.set(step, self._tags)
        for metric in self._gauges.keys() & metrics.keys():
            self._gauges[metric].set(metrics[metric], self._tags)
