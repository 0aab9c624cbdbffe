"""System metrics of each node: processor, memory, disk, network, GPU, and power where it can be read."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from pipelines.tracking.client import connect
from pipelines.tracking.power import ProcessorPower

SAMPLE_SECONDS = 10.0


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
