"""The servers of a cluster, and the environment variables of their clients."""

import os
import signal
import sys
from pathlib import Path

import mlflow_server
import spark_servers
from credentials import content, secret
from http_json import get_json
from monitoring import textfiles_folder
from places import HERE, Places
from ray_head import head_options, node_command
from ray_on_loopback import VARIABLES
from service import Service

from pipelines.config.paths import home

NODE_CPUS = max(1, (os.cpu_count() or 1) // 2)
# A node that is gone is detected within 10 s instead of a minute, and workers have the usual priority.
RAY_SETTINGS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    # Time for a stopped training to save; by default Ray kills it after 3 s.
    "RAY_JOB_STOP_WAIT_TIME_S": "150",
}


def servers(places: Places) -> tuple[list[Service], list[Service]]:
    """The servers that need no other one, and then those that need one of the first."""
    head = head_options(places.sockets / "head", places.ports["jobs"], places.ports["ray"])
    head.append(f"--dashboard-host={places.host('ray-head').address}")
    # Its own folder: each node unpacks the jobs' code there, and would replace it under the other node's processes.
    node = [f"--address={places.at('ray')}", f"--temp-dir={places.sockets / 'node'}"]
    return [
        mlflow_server.database(places),
        spark_servers.master(places),
        _ray("ray-head", _jobs(places), head, places),
    ], [
        mlflow_server.server(places),
        spark_servers.worker(1, places),
        spark_servers.worker(2, places),
        _ray("ray-node", places.host("ray-node").address, node, places),
    ]


def write_conf(places: Places) -> None:
    """Write the configuration files of the servers and of Spark's clients."""
    spark_servers.write_conf(places)
    mlflow_server.write_conf(places)


def client_variables(places: Places) -> dict[str, str]:
    """The environment variables of a shell on the master's host, without MLflow's password."""
    front = places.host("spark-master").address
    return {
        "SPARK_CONF_DIR": str(places.folder / "conf/spark"),
        "SPARK_LOCAL_IP": front,
        "RAY_API_SERVER_ADDRESS": _jobs(places),
        **(VARIABLES if places.host("ray-head") == HERE else {}),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(secret(places.folder, "ray-token")),
        "MLFLOW_TRACKING_URI": mlflow_server.address(places),
        "MLFLOW_TRACKING_USERNAME": mlflow_server.USER,
        "LOCKSTEP_METRICS": str(textfiles_folder(places)),
    }


def _ray(name: str, page: str, options: list[str], places: Places) -> Service:
    """A Ray node that is restarted whenever it ends. Jobs inherit its environment, so that no job's description contains
    MLflow's password."""
    host = places.host(name)
    inherited = {key: value for key, value in client_variables(places).items() if key.startswith(("RAY_AUTH", "MLFLOW_"))}
    variables = {
        **RAY_SETTINGS,
        **inherited,
        "MLFLOW_TRACKING_PASSWORD": content(mlflow_server.password(places.folder)),
        "LOCKSTEP_HOME": str(home()),
        "RAY_ADDRESS": places.at("ray"),  # so that jobs know which Ray of a machine they run in
        "GLOO_SOCKET_IFNAME": host.interface,  # for gradients; the default is the network of the machine's name
    }
    token = content(secret(places.folder, "ray-token"))

    def healthy() -> bool:
        summary = get_json(f"{_jobs(places)}/nodes?view=summary", Authorization=f"Bearer {token}")
        nodes = [node["raylet"] for node in (summary.get("data") or {}).get("summary", [])]
        return any(node.get("nodeName") == name and node.get("state") == "ALIVE" for node in nodes)

    supervised = [sys.executable, str(Path(__file__).with_name("supervise.py"))]
    command = [*host.enter, *supervised, *node_command(NODE_CPUS, f"--node-name={name}", *options, address=host.address)]
    # SIGKILL, since jobs have been stopped before, and nothing else needs time to end.
    return Service(name, page, command, variables, healthy, places.folder, stop=signal.SIGKILL)


def _jobs(places: Places) -> str:
    return f"http://{places.at('jobs')}"
