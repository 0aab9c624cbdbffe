"""Starts replicas and the HTTP server on a Ray cluster, and stops them."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import serve

from pipelines.config import Config
from pipelines.config.serving import Endpoint
from pipelines.errors import ConfigError
from pipelines.launch.own_ray import keep_token, own_ray, ray_folder, restored_handler
from pipelines.runtime.machine import port
from pipelines.serving.http import haproxy
from pipelines.serving.http.access import token_digest
from pipelines.serving.http.counters import ACTOR, NAMESPACE, Counters
from pipelines.serving.http.replica import ModelReplica
from pipelines.serving.http.served_model import load_served_model
from pipelines.tracking.models import resolve_version

log = logging.getLogger(__name__)

PATIENT = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"}
"""For a Ray that we start: on a busy machine, the HTTP server was stopped after 5 seconds, while it still imported Ray."""
QUIET = {"log_level": "ERROR", "enable_access_log": False}


@contextmanager
def endpoint(config: Config) -> Iterator[str]:
    """Serve the model of `config.endpoint` for the duration of the block, which gets its address.

    RAY_ADDRESS names the Ray cluster; without it, one is started on this machine. Raises ConfigError for a missing token or a port that
    is in use, TrackingError if MLflow has no such model, and CorruptError if it was altered, before anything is started.
    """
    settings = config.endpoint
    settings = settings.model_copy(update={"model": settings.model or f"models:/{config.name}@champion"})
    digest = token_digest(settings)
    version = resolve_version(config.tracking.uri, settings.model)
    load_served_model(config.tracking.uri, settings.model, version)
    _check_port(settings)
    with _ray(settings):
        log.info("serving   %s, version %s, with %d replicas", settings.model, version, settings.replicas)
        counters: Any = (
            ray.remote(Counters).options(name=ACTOR, namespace=NAMESPACE, get_if_exists=True, num_cpus=0, max_restarts=-1).remote()
        )
        options = {"host": settings.host, "port": settings.port, "keep_alive_timeout_s": 60}
        serve.start(http_options=options, logging_config=QUIET)
        try:
            serve.run(deployment(config, settings, digest), name="lockstep", logging_config=QUIET)
            yield f"http://{settings.host}:{settings.port}"
        finally:
            serve.shutdown()
            ray.kill(counters)


def deployment(config: Config, settings: Endpoint, digest: bytes | None) -> Any:
    """The application of Ray Serve. Ray Serve answers 503 if replicas and their queue are full."""
    model: Any = serve.deployment(
        ModelReplica,
        name="model",
        num_replicas=settings.replicas,
        max_ongoing_requests=settings.waiting_requests,
        max_queued_requests=settings.waiting_requests,
        ray_actor_options={"num_cpus": 1},
        graceful_shutdown_timeout_s=30,
        health_check_period_s=2,
        health_check_timeout_s=30,
    )
    return model.bind(settings, config.tracking.uri, digest)


@contextmanager
def _ray(settings: Endpoint) -> Iterator[None]:
    ray_options: dict[str, Any] = {"logging_config": ray.LoggingConfig(log_level="ERROR"), "namespace": NAMESPACE}
    if ray.is_initialized():
        yield
    elif address := os.environ.get("RAY_ADDRESS"):
        with restored_handler():
            ray.init(address, **ray_options)
        try:
            yield
        finally:
            ray.shutdown()
    else:
        keep_token()
        with ray_folder() as folder:
            for name, value in {**PATIENT, **haproxy.variables(Path(folder).parent / "h", settings)}.items():
                os.environ.setdefault(name, value)
            with own_ray(max(os.cpu_count() or 1, settings.replicas), _temp_dir=folder, **ray_options):
                yield


def _check_port(settings: Endpoint) -> None:
    """Ray Serve would try to start its HTTP server again and again."""
    if fault := port(settings.host, settings.port).fault:
        raise ConfigError(f"endpoint.host and endpoint.port are {fault}; choose another port")
