"""Serves the text files that ETLs leave for Prometheus, on loopback: python cluster/local/textfiles.py FOLDER PORT

Prometheus's node_exporter does the same, where it is installed: --collector.textfile.directory=FOLDER.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from loopback import LOOPBACK
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


class TextFiles(Collector):
    """The metrics in all *.prom files of a folder. Each metric comes once, since Prometheus refuses a repetition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for file in sorted(self._folder.glob("*.prom")):
            for metric in text_string_to_metric_families(file.read_text(encoding="utf-8")):
                metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type)).samples += metric.samples
        yield from metrics.values()


if __name__ == "__main__":
    registry = CollectorRegistry()
    registry.register(TextFiles(Path(sys.argv[1])))
    _, thread = start_http_server(int(sys.argv[2]), LOOPBACK, registry)
    thread.join()
