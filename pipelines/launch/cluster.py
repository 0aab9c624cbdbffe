"""Joins or starts the Ray cluster that a training runs on, and queries its resources."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import ray

from pipelines.config.train.train import Train
from pipelines.errors import MismatchError, TrainingError
from pipelines.launch.own_ray import WaitingWorkers, keep_token, own_ray, ray_folder, restored_handler
from pipelines.launch.ray_output import RayOutput
from pipelines.runtime.compat.ray import filtered_output
from pipelines.runtime.imports import meanwhile
from pipelines.runtime.machine import has_gpus

log = logging.getLogger(__name__)

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

_PRELOADED = ("pipelines.launch.preload",)


def _nothing() -> None:
    pass


@contextmanager
def cluster(settings: Train, prepare: Callable[[], None] = _nothing) -> Iterator[RayOutput]:
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
    """Join or start a Ray, until the end of `ray_life`."""
    init_settings: dict[str, Any] = {
        "logging_config": ray.LoggingConfig(log_level="ERROR"),  # for Ray's own processes; the output of tasks is still shown
    }
    if address := os.environ.get("RAY_ADDRESS"):
        _join(address, {**init_settings, "runtime_env": {"env_vars": WORKERS_ENVIRONMENT}})
        ray_life.callback(ray.shutdown)
    else:
        cpus = max(os.cpu_count() or 1, settings.max_workers * settings.cpus_per_worker)
        keep_token()
        folder = ray_life.enter_context(ray_folder())
        ray_life.enter_context(output.kept_log())
        ray_life.enter_context(own_ray(cpus, _waiting_workers(settings), _temp_dir=folder, **init_settings))


def _waiting_workers(settings: Train) -> WaitingWorkers:
    """The processes that a Ray of our own starts for the workers: none for GPUs, where what is imported may see the wrong ones, and a
    strategy may set variables."""
    if settings.use_gpu is not False and has_gpus():
        return WaitingWorkers(0, (), WORKERS_ENVIRONMENT)
    return WaitingWorkers(settings.max_workers, _PRELOADED, WORKERS_ENVIRONMENT)


def _join(address: str, settings: dict[str, Any]) -> None:
    try:
        with restored_handler():
            ray.init(address, **settings)
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        raise MismatchError(f"{' '.join(str(error).split())}; run the driver in the cluster's own image") from error


def may_grow() -> bool:
    """Whether machines may join the Ray cluster: only if RAY_ADDRESS names it, since none joins one that we start."""
    return bool(os.environ.get("RAY_ADDRESS"))


def job_tags() -> dict[str, str]:
    """Ray's id of this job, and the name under which it was submitted, if it was."""
    job_config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    name = (job_config.get("metadata") or {}).get("job_submission_id", "")
    return {"ray.job_id": ray.get_runtime_context().get_job_id(), **({"ray.submission_id": name} if name else {})}


def host_names(nodes: Iterable[str]) -> list[str]:
    """Host names of nodes, by their ids."""
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
