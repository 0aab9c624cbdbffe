"""Machines that are about to be taken away, such as spot instances: the workers save first, and the run goes on without them.

Whoever runs the cluster tells Ray, as `ray drain-node` and its autoscaler do. Ray Train's own watcher is an actor that uses a core's
hundredth all the time, and its answer a barrier of all workers; the driver asks Ray's controller instead.
"""

import logging
import time
from collections.abc import Callable, Iterable

import ray

from pipelines.errors import TrainingError
from pipelines.launch.cluster import host_names
from pipelines.monitor.worker_monitor import read_beats
from pipelines.runtime.compat.ray import draining_nodes
from pipelines.train.checkpoint.run_directory import STOP, RunDirectory

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0


class Preemption:
    """Looks for machines of the group that Ray is draining, and asks the workers to save and stop when there are some."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None]) -> None:
        self._directory, self._say = directory, say
        self._last_poll = 0.0
        self.nodes: tuple[str, ...] = ()
        """Ray's ids of the machines on which workers ran when they were asked to stop."""

    def poll(self) -> None:
        """Ask Ray, if that is due. A failure is logged, and ends no training: the next poll tries again."""
        if self.nodes or time.monotonic() - self._last_poll < POLL_SECONDS:
            return
        self._last_poll = time.monotonic()
        try:
            if draining := draining_nodes():
                self._leave({beat.node for beat in read_beats(self._directory).values()} & draining)
        except (TrainingError, ray.exceptions.RayError) as error:
            log.warning("%s", error)

    def _leave(self, nodes: Iterable[str]) -> None:
        self.nodes = tuple(sorted(nodes))
        if self.nodes:
            self._say(f"{', '.join(host_names(self.nodes))} is about to be taken away: the workers save first")
            self._directory.put(STOP, b"")
