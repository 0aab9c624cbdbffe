"""Starts replicas and the HTTP server on a Ray cluster, and stops them."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import ray
from ray import serve

from pipelines.config import Config
from pipelines.config.serving import Endpoint
from pipelines.errors import ConfigError
from pipelines.launch.own_ray import keep_token, own_ray, ray_folder, restored_handler
from pipelines.runtime.compat.haproxy import BALANCE, RETRY_ON, append_default_option
from pipelines.runtime.machine import port
from pipelines.serving.http.counters import ACTOR, NAMESPACE, Counters
from pipelines.serving.http.replica import ModelReplica
from pipelines.serving.http.request import token_digest
from pipelines.serving.http.served_model import load_served_model
from pipelines.tracking.models import resolve_version

log = logging.getLogger(__name__)

_TOO_LATE = "no replica has answered in time; send the request again"
PATIENT = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"}
"""For a Ray that we start: on a busy machine, the HTTP server was stopped after 5 seconds, while it still imported Ray."""
QUIET = {"log_level": "ERROR", "enable_access_log": False}


def variables(folder: Path, settings: Endpoint) -> dict[str, str]:
    """Environment variables of the processes of a Ray cluster. HAProxy's files go below `folder`, and so does the socket at which
    everyone who can enter the folder controls HAProxy. The folder's path must be short: Ray adds a node's id of 56 characters, and a
    socket's path has at most 107."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("", 0))
        second.bind(("", 0))
        metrics, statistics = first.getsockname()[1], second.getsockname()[1]
    buffered = append_default_option(RETRY_ON, "conn-failure empty-response", "option http-buffer-request")
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        # A replica that is stopped answers nothing new after this time, by default 30 s.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        # A prediction changes nothing, so a request whose replica died is sent to another one. A dead replica has the fewest connections
        # and is chosen again until it is found down, so there are several attempts. A request can be sent again if it fits in the buffer,
        # and if HAProxy has all of it before it sends any.
        # By default a client has for ever to send its headers, and an hour between two pieces of its body.
        RETRY_ON: append_default_option(RETRY_ON, buffered, f"timeout http-request {settings.request_seconds * 1000:.0f}ms"),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(ceil(settings.request_seconds)),
        # By default a client waits for ever for a replica that hangs, and Ray has the answer say 500.
        BALANCE: append_default_option(BALANCE, "leastconn", f'http-error status 504 content-type text/plain string "{_TOO_LATE}"'),
        "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": str(ceil(settings.answer_seconds)),
        "RAY_SERVE_HAPROXY_RETRIES": "8",
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(1 << 16),
        # By default they are the same for every endpoint of the machine.
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(statistics),
    }


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
            for name, value in {**PATIENT, **variables(Path(folder).parent / "h", settings)}.items():
                os.environ.setdefault(name, value)
            with own_ray(max(os.cpu_count() or 1, settings.replicas), _temp_dir=folder, **ray_options):
                yield


def _check_port(settings: Endpoint) -> None:
    """Ray Serve would try to start its HTTP server again and again."""
    if fault := port(settings.host, settings.port).fault:
        raise ConfigError(f"endpoint.host and endpoint.port are {fault}; choose another port")
