"""Counts requests, rows and seconds of all replicas, for Prometheus.

One actor has the sums. Replicas send their counts every second, so a replica that dies takes at most a second's counts along.
"""

import time
from collections import Counter as Tally
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram of seconds."""
ACTOR, NAMESPACE = "lockstep-counters", "lockstep"
_FORGET_SECONDS = 10.0


@dataclass
class ReplicaCounts:
    """Counts of one replica since it last sent them."""

    requests: list[tuple[int, float]] = field(default_factory=list)
    """Status and seconds of each."""
    rows_predicted: int = 0
    rows_refused: int = 0
    batches: int = 0
    swaps: int = 0
    follow_failures: int = 0


class Counters:
    """The sums over all replicas. Ray runs it as an actor."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("lockstep_requests", "Requests by status.", ["status"], registry=registry)
        self._rows = Counter("lockstep_rows", "Rows, by whether they were predicted or refused.", ["outcome"], registry=registry)
        self._batches = Counter("lockstep_batches", "Predictions of rows of several requests together.", registry=registry)
        self._swaps = Counter("lockstep_swaps", "Models that replaced another one in a replica.", registry=registry)
        self._failures = Counter("lockstep_follow_failures", "Times that the alias could not be followed.", registry=registry)
        seconds = "Seconds from a request's arrival at a replica to its answer."
        self._seconds = Histogram("lockstep_request_seconds", seconds, buckets=BOUNDS, registry=registry)
        self._replicas = Gauge("lockstep_model_replicas", "Replicas by the version that they serve.", ["version"], registry=registry)
        self._versions: dict[str, tuple[str, float]] = {}

    def add(self, replica: str, version: str, counts: ReplicaCounts) -> None:
        self._versions[replica] = version, time.monotonic()
        for status, seconds in counts.requests:
            self._requests.labels(status).inc()
            self._seconds.observe(seconds)
        self._rows.labels("predicted").inc(counts.rows_predicted)
        self._rows.labels("refused").inc(counts.rows_refused)
        self._batches.inc(counts.batches)
        self._swaps.inc(counts.swaps)
        self._failures.inc(counts.follow_failures)

    def text(self) -> bytes:
        """Prometheus's text format, with the versions of the replicas that have sent counts in the last seconds."""
        oldest = time.monotonic() - _FORGET_SECONDS
        self._versions = {replica: (version, sent) for replica, (version, sent) in self._versions.items() if sent > oldest}
        self._replicas.clear()
        for version, replicas in Tally(version for version, _ in self._versions.values()).items():
            self._replicas.labels(version).set(replicas)
        return generate_latest(self._registry)
