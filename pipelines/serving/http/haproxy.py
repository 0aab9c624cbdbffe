"""HAProxy, which comes with ray[serve] and passes requests on to replicas: the variables with which Ray Serve starts it.

Ray Serve's proxy in Python takes more processor time for a request than a replica for a row.
"""

import socket
from math import ceil
from pathlib import Path

from pipelines.config.serving import Endpoint
from pipelines.runtime.compat.haproxy import BALANCE, RETRY_ON, append_default_option

_TOO_LATE = "no replica has answered in time; send the request again"


def variables(folder: Path, settings: Endpoint) -> dict[str, str]:
    """Environment variables of the processes of a Ray cluster. HAProxy's files go below `folder`, and so does the socket at which
    everyone who can enter the folder controls HAProxy. The folder's path must be short: Ray adds a node's id of 56 characters, and a
    socket's path has at most 107."""
    metrics, statistics = _free_ports()
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


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("", 0))
        second.bind(("", 0))
        return first.getsockname()[1], second.getsockname()[1]
