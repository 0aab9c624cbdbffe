"""System metrics of each node: processor, memory, disk, network, GPU, and power where it can be read: from Intel's and
AMD's running average power limit (RAPL)."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from pipelines.tracking.client import connect

POWERCAP = Path("/sys/class/powercap")
METRIC = "processor_power_usage_watts"
SAMPLE_SECONDS = 10.0


class ProcessorPower(BaseMetricsMonitor):
    """Mean power since the last sample, over all packages. Most systems let only root read the counters; then there is no metric."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        super().__init__()
        self._folder = folder
        self._before = time.monotonic(), counters(folder)

    @property
    def is_readable(self) -> bool:
        return bool(self._before[1])

    def collect_metrics(self) -> None:
        before, now = self._before, (time.monotonic(), counters(self._folder))
        self._before = now
        joules = []
        for name, (microjoules, limit) in now[1].items():
            if name in before[1]:
                difference = microjoules - before[1][name][0]
                # The counter may have started at 0 again once.
                joules.append((difference if difference >= 0 else difference + limit) / 1e6)
        if joules and now[0] > before[0]:
            self._metrics[METRIC].append(sum(joules) / (now[0] - before[0]))

    def aggregate_metrics(self) -> dict[str, float]:
        return {name: sum(values) / len(values) for name, values in self._metrics.items()}


def counters(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Microjoules, and the value at which the counter starts at 0 again, of each package that can be read."""
    energies = {}
    for package in folder.glob("intel-rapl:*"):
        try:
            if package.name.count(":") == 1:  # others are parts of a package
                energies[package.name] = (
                    int((package / "energy_uj").read_text(encoding="utf-8")),
                    int((package / "max_energy_range_uj").read_text(encoding="utf-8")),
                )
        except (OSError, ValueError):
            continue
    return energies


@contextmanager
def system_metrics(uri: str, run_id: str, node: str) -> Iterator[None]:
    """Log system metrics of this node as `system/<node>/…` inside the `with` block, by the monitor of MLflow, in a thread.

    The monitor stops when the server is unreachable, so these curves may be incomplete, unlike those of the training.
    """
    connect(uri)
    logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
    monitor = SystemMetricsMonitor(run_id, sampling_interval=SAMPLE_SECONDS, resume_logging=True, node_id=node, tracking_uri=uri)
    if (power := ProcessorPower()).is_readable:
        monitor.monitors.append(power)
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()
