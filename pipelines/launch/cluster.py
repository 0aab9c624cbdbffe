"""Joins or starts the Ray cluster that a training runs on, queries its resources, and sorts the output of Ray's processes.

When a worker dies, Ray and torch print some thirty lines about it: the raylet's advice, tracebacks of every worker that lost its
connection, C++ frames. The driver says the same in one line, shows the lines of tasks and our own, and keeps all others for a file of
the run.
"""

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from typing import Any

import ray

from pipelines.config.train.train import Train
from pipelines.errors import MismatchError, TrainingError
from pipelines.launch.own_ray import keep_token, own_ray, ray_folder, restored_handler
from pipelines.runtime.compat.ray import filtered_output
from pipelines.runtime.imports import meanwhile
from pipelines.runtime.machine import has_gpus
from pipelines.train.checkpoint.run_directory import RunDirectory

log = logging.getLogger(__name__)

FILE = "ray.log"
_MOST_LINES = 20_000
_QUIET_SECONDS = 10.0
"""For so long after a hidden line of a process, all that it prints to stderr is part of the same report."""
_RAYS = ("TrainController", "SynchronizationActor", "AutoscalingCoordinator")
"""Ray's actors, which print nothing but reports."""
_REPORT = re.compile(
    r"Traceback \(most recent call last\)|Error in training function|Fatal Python error|terminate called|\*\*\* SIG|\s*frame #\d+"
    r"|\s*@ +0x|\[rank\d+\]:\[[EWF]|\[\w*[EF]\d{4} |\[\d{4}-\d\d-\d\d [\d:,]+ [EF] "
)
"""How a report begins: of Python, of torch's C++, of glog."""
WORKERS_ENVIRONMENT = {
    # How long Ray waits for workers to shut down their process group before it restarts them. A hung worker makes it wait
    # for all of it, by default 30 s.
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
    # Ray Train runs the training in a thread. glibc gives each thread a heap of its own and returns its memory to the system
    # at every step: on two cores, 2,000 page faults per step and a sixth of the time. So all threads use one heap, which
    # keeps freed memory.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the largest value that every glibc accepts
}


class RayOutput:
    """Sorts the lines that Ray hands to the driver. They come from threads of Ray's."""

    def __init__(self) -> None:
        self._hidden_lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._quiet_until: dict[Any, float] = {}
        self._lock = Lock()

    def hide_reports(self, data: Mapping[str, Any]) -> list[str]:
        """Return the lines to show of a batch, and store all others. `data` is Ray's: `lines`, `pid`, `is_err`, `actor_name`."""
        with self._lock:
            hidden = [self._is_hidden(data, line) for line in data["lines"]]
            origin = f"({data.get('actor_name') or data.get('task_name') or 'ray'} pid={data.get('pid')})"
            self._hidden_lines.extend(f"{origin} {line}" for line, is_hidden in zip(data["lines"], hidden, strict=True) if is_hidden)
        return [line for line, is_hidden in zip(data["lines"], hidden, strict=True) if not is_hidden]

    @contextmanager
    def kept_log(self) -> Iterator[None]:
        """Within the block, store what Ray Train logs in this process instead of printing it: warnings and errors."""
        logger, handler = logging.getLogger("ray.train"), _Reports(self)
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagates

    def write(self, directory: RunDirectory) -> str:
        """Write the hidden lines into the run's directory. Return a line that names the file; empty without hidden lines.

        Raises TrainingError if the store fails.
        """
        with self._lock:
            text = "\n".join(self._hidden_lines)
        if not text:
            return ""
        directory.put(FILE, f"{text}\n".encode())
        with self._lock:
            self._hidden_lines.clear()  # they are not of the next run on this Ray
        return f"what Ray and torch printed about it is in {directory.path}/{FILE}"

    def _is_hidden(self, data: Mapping[str, Any], line: str) -> bool:
        process = data.get("pid")
        if process == "raylet":
            return True
        if not data.get("is_err"):
            return False
        if data.get("actor_name") in _RAYS:
            return True
        now = time.monotonic()
        if now < self._quiet_until.get(process, 0.0) or _REPORT.match(line):
            self._quiet_until[process] = now + _QUIET_SECONDS
            return True
        return False


class _Reports(logging.Handler):
    """Hands the reports of a controller in this process to the output, as if Ray had."""

    def __init__(self, output: RayOutput) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.format(record).splitlines()
        self._output.hide_reports({"lines": lines, "pid": os.getpid(), "is_err": True, "actor_name": _RAYS[0]})


@contextmanager
def cluster(settings: Train, prepare: Callable[[], None] = lambda: None) -> Iterator[RayOutput]:
    """Connect this process to a Ray cluster for the duration of the block, unless it is connected already. Calls `prepare` meanwhile.

    RAY_ADDRESS names the cluster, as it does in a submitted job. Without it, a cluster is started on this machine, with as
    many CPUs as the workers need. Gives what Ray prints and nobody need read. Raises MismatchError if the cluster runs another version
    of Ray.
    """
    output = RayOutput()
    with filtered_output(output.hide_reports), ExitStack() as ray_life:
        with meanwhile(prepare):
            if not ray.is_initialized():
                _connect(settings, output, ray_life)
        yield output


def _connect(settings: Train, output: RayOutput, ray_life: ExitStack) -> None:
    init_settings: dict[str, Any] = {
        "logging_config": ray.LoggingConfig(log_level="ERROR")  # for Ray's own processes; the output of tasks is still shown
    }
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            with restored_handler():
                ray.init(address, **init_settings, runtime_env={"env_vars": WORKERS_ENVIRONMENT})
        except RuntimeError as error:
            if "Version mismatch" not in str(error):
                raise
            raise MismatchError(f"{' '.join(str(error).split())}; run the driver in the cluster's own image") from error
        ray_life.callback(ray.shutdown)
    else:
        cpus = max(os.cpu_count() or 1, settings.max_workers * settings.cpus_per_worker)
        keep_token()
        folder = ray_life.enter_context(ray_folder())
        ray_life.enter_context(output.kept_log())
        waiting, modules = settings.max_workers, ["pipelines.launch.preload"]
        if settings.use_gpu is not False and has_gpus():  # what is imported there may see the wrong ones, and a strategy may set variables
            waiting, modules = 0, []
        ray_life.enter_context(own_ray(cpus, waiting, modules, WORKERS_ENVIRONMENT, _temp_dir=folder, **init_settings))


def job_tags() -> dict[str, str]:
    """Ray's id of this job, and the name under which it was submitted, if it was."""
    job_config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    name = (job_config.get("metadata") or {}).get("job_submission_id", "")
    return {"ray.job_id": ray.get_runtime_context().get_job_id(), **({"ray.submission_id": name} if name else {})}


def host_names(nodes: Iterable[str]) -> list[str]:
    host_by_node = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    return sorted({host_by_node.get(node, node) for node in nodes})


class Machines:
    """Makes Ray Train recount the cluster's machines when one joins or leaves; by itself it does so every 20 s."""

    def __init__(self) -> None:
        self._alive: set[str] = set()

    def poll(self) -> None:
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        if alive != self._alive:
            self._alive = alive
            with suppress(ValueError):
                _coordinator().get_reserved_resources.remote("", recompute=True)


def release(reservation: str) -> None:
    """Release the machines that Ray has reserved for an elastic group whose driver died; Ray does so after 3 minutes."""
    with suppress(ValueError):
        _coordinator().cancel_request.remote(reservation)


def _coordinator() -> Any:
    """Ray Train's actor that counts and reserves machines. Raises ValueError if there has been no elastic group yet."""
    return ray.get_actor("AutoscalingCoordinator", namespace="AutoscalingCoordinator")


def uses_gpus(settings: Train) -> bool:
    """Whether workers use GPUs. Raises TrainingError if the config requires them and the cluster has too few."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if settings.use_gpu is True and gpus < settings.min_workers:
        raise TrainingError(
            f"train.use_gpu is true, but the Ray cluster has {gpus} GPUs for {settings.min_workers} workers, which need one each; "
            f"{'lower train.workers, or ' if gpus else ''}set train.use_gpu to auto"
        )
    if settings.use_gpu == "auto" and 0 < gpus < settings.min_workers:
        log.warning(
            "workers use CPUs: the Ray cluster has %d GPU%s for %d workers, which need one each; to use GPUs, set train.workers to %d",
            gpus,
            "s" if gpus > 1 else "",
            settings.min_workers,
            gpus,
        )
    return settings.use_gpu is not False and gpus >= settings.min_workers


def warn_of_missing_cpus(settings: Train) -> None:
    """Warn if the cluster has too few CPUs. That is not an error, since a cluster may grow, and Ray waits for it."""
    has, needs = ray.cluster_resources().get("CPU", 0), settings.min_workers * settings.cpus_per_worker
    if has < needs:
        log.warning("the Ray cluster has %d CPUs, but the workers need %d: waiting for it to grow", has, needs)
