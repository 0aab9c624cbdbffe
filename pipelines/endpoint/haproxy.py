"""HAProxy, which comes with ray[serve] and passes requests on to replicas: how Ray Serve starts it on a Ray of ours.

Ray Serve's proxy in Python takes more processor time for a request than a replica for a row.
"""

import socket

SETTINGS = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # A replica that is stopped answers nothing new after this time, by default 30 s.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
}
"""Environment variables of the processes of a Ray cluster."""


def free_ports() -> dict[str, str]:
    """Further variables: ports of HAProxy's statistics, which otherwise are the same for every endpoint of the machine."""
    with socket.socket() as metrics, socket.socket() as statistics:
        metrics.bind(("", 0))
        statistics.bind(("", 0))
        ports = metrics.getsockname()[1], statistics.getsockname()[1]
    return dict(zip(("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT"), map(str, ports), strict=True))
