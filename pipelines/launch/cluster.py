"""The Ray cluster that a training runs on: joined or started, and asked for what it has."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray

from pipelines.config.train import Train
from pipelines.errors import MismatchError, TrainingError
from pipelines.launch.own_ray import own_ray, signals_kept
from pipelines.launch.private import keep_token, ray_folder

log = logging.getLogger(__name__)

WORKERS_ENVIRONMENT = {
    # So long Ray waits for a group's workers to take leave of each other before it starts them anew; 30 s by default, which
    # a worker that hangs takes in full.
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
    # Ray Train trains in a thread, to which glibc gives a heap of its own that it returns to the system at every step: on two
    # cores, 2,000 page faults a step and a sixth of the time. One heap for all threads, and what is free is kept.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that every glibc takes
}


@contextmanager
def cluster(settings: Train) -> Iterator[None]:
    """The Ray that this process is connected to, or the one that RAY_ADDRESS names, as it does in a submitted job; or a
    Ray of our own for as long as this lasts, with a CPU for every one that the workers take.

    Raises MismatchError if the Ray of that address is of another version.
    """
    if ray.is_initialized():
        yield
        return
    of_both: dict[str, Any] = {
        "logging_config": ray.LoggingConfig(log_level="ERROR"),  # of Ray's own processes; what a task prints is passed on
        "runtime_env": {"env_vars": WORKERS_ENVIRONMENT},
    }
    if address := os.environ.get("RAY_ADDRESS"):
        _join(address, of_both)
        try:
            yield
        finally:
            ray.shutdown()
    else:
        cpus = max(os.cpu_count() or 1, settings.max_workers * settings.cpus_per_worker)
        keep_token()
        with ray_folder() as folder, own_ray(cpus, _temp_dir=folder, **of_both):
            yield


def _join(address: str, settings: dict[str, Any]) -> None:
    try:
        with signals_kept():
            ray.init(address, **settings)
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        raise MismatchError(f"{' '.join(str(error).split())}; run the driver in the cluster's own image") from error


def may_grow() -> bool:
    """Whether machines may join the Ray that a training runs on: one that RAY_ADDRESS names. None joins one of our own."""
    return bool(os.environ.get("RAY_ADDRESS"))


def job_tags() -> dict[str, str]:
    """Ray's own number of this job, and the name it was submitted under."""
    described = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    name = (described.get("metadata") or {}).get("job_submission_id", "")
    return {"ray.job_id": ray.get_runtime_context().get_job_id(), "ray.submission_id": name}


class Machines:
    """Has Ray Train count the cluster's machines when one came or went; by itself it does so every 20 s."""

    def __init__(self) -> None:
        self._alive: set[str] = set()

    def look(self) -> None:
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        if alive != self._alive:
            self._alive = alive
            with suppress(ValueError):
                _coordinator().get_reserved_resources.remote("", recompute=True)


def release(reservation: str) -> None:
    """Free the machines that Ray keeps for an elastic group whose driver has died; by itself it does so after 3 minutes."""
    with suppress(ValueError):
        _coordinator().cancel_request.remote(reservation)


def _coordinator() -> Any:
    """Ray Train's actor that counts and reserves machines. Raises ValueError if there was no elastic group yet."""
    return ray.get_actor("AutoscalingCoordinator", namespace="AutoscalingCoordinator")


def takes_gpus(settings: Train) -> bool:
    """Whether workers compute on GPUs. Raises TrainingError if they must and the cluster has too few."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if settings.use_gpu is True and gpus < settings.min_workers:
        raise TrainingError(
            f"train.use_gpu is true and the Ray cluster has {gpus} GPUs for {settings.min_workers} workers, one each; "
            "lower train.workers, or set train.use_gpu to auto"
        )
    return settings.use_gpu is not False and gpus >= settings.min_workers


def warn_of_waiting(settings: Train) -> None:
    """A cluster may grow, so too few CPUs are no error: Ray waits, and we say for what."""
    has, needs = ray.cluster_resources().get("CPU", 0), settings.min_workers * settings.cpus_per_worker
    if has < needs:
        log.warning("the Ray cluster has %d CPUs, and the workers take %d: waiting for it to grow", has, needs)
