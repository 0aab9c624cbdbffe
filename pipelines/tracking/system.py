"""Each node's own figures: processor, memory, disk, network, GPU."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from pipelines.tracking.client import connect

SAMPLE_SECONDS = 10.0


@contextmanager
def system_metrics(uri: str, run_id: str, node: str) -> Iterator[None]:
    """Log this node's figures meanwhile, as `system/<node>/…`; MLflow's own monitor does it, in a thread.

    It ends by itself when the server goes away: these curves may have a gap, training's may not.
    """
    connect(uri)
    logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
    monitor = SystemMetricsMonitor(run_id, sampling_interval=SAMPLE_SECONDS, resume_logging=True, node_id=node, tracking_uri=uri)
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()
