"""Counts requests, rows and seconds of all replicas, for Prometheus.

One actor has the sums. Replicas send what they have counted every second, so a replica that dies takes at most a second's counts along.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, MutableMapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram of seconds."""
ACTOR, NAMESPACE = "lockstep-counters", "lockstep"
_LATELY_SECONDS = 10.0
Key = tuple[str, str]
"""Name, and labels as Prometheus writes them."""

_HELP = {
    "lockstep_requests_total": ("counter", "Requests by status."),
    "lockstep_rows_total": ("counter", "Rows, by whether they were predicted or refused."),
    "lockstep_batches_total": ("counter", "Predictions of rows of several requests together."),
    "lockstep_swaps_total": ("counter", "Models that replaced another one in a replica."),
    "lockstep_follow_failures_total": ("counter", "Times that the alias could not be followed."),
    "lockstep_request_seconds": ("histogram", "Seconds from a request's arrival at a replica to its answer."),
    "lockstep_model_replicas": ("gauge", "Replicas by the version that they serve."),
}


def observe(counts: MutableMapping[Key, float], seconds: float) -> None:
    """Add a request to the histogram of seconds."""
    counts["lockstep_request_seconds_sum", ""] += seconds
    counts["lockstep_request_seconds_count", ""] += 1
    counts["lockstep_request_seconds_bucket", '{le="+Inf"}'] += 1
    for bound in BOUNDS:
        counts["lockstep_request_seconds_bucket", f'{{le="{bound}"}}'] += seconds <= bound


class Counters:
    """The sums over all replicas. Ray runs it as an actor."""

    def __init__(self) -> None:
        self._counts: dict[Key, float] = defaultdict(float)
        self._versions: dict[str, tuple[str, float]] = {}

    def add(self, replica: str, version: str, counts: Mapping[Key, float]) -> None:
        self._versions[replica] = version, time.monotonic()
        for key, count in counts.items():
            self._counts[key] += count

    def text(self) -> str:
        """In the format of Prometheus, with the versions of the replicas that have sent something lately."""
        since = time.monotonic() - _LATELY_SECONDS
        self._versions = {replica: found for replica, found in self._versions.items() if found[1] > since}
        versions = Counter(version for version, _ in self._versions.values())
        gauges = {("lockstep_model_replicas", f'{{version="{version}"}}'): float(count) for version, count in versions.items()}
        return text({**self._counts, **gauges})


def text(counts: Mapping[Key, float]) -> str:
    """Counts in the text format of Prometheus."""
    lines = []
    for name, (kind, said) in _HELP.items():
        lines += [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
        names = {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
        lines += [f"{key}{labels} {count:.17g}" for (key, labels), count in sorted(counts.items()) if key in names]
    return "\n".join(lines) + "\n"
