"""The servers of a cluster on one machine, and what a shell needs to use them."""

import os
import signal
import socket
from pathlib import Path

import mlflow_server
import spark_servers
from asking import asked
from credentials import content, secret
from ray_head import head_options, node_command
from ray_on_loopback import HOST, VARIABLES
from service import Service
from sessions import free_port

PORTS = {"postgres": 5432, "mlflow": 5000, "spark": 7077, "spark-ui": 8080, "worker-1": 8081, "worker-2": 8082, "ray": 6379, "jobs": 8265}
NODE_CPUS = max(1, (os.cpu_count() or 1) // 2)
# A node that is gone is noticed within 10 s instead of a minute, and workers are no nicer than everything else.
RAY_SETTINGS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    # For a stopped training to save: Ray's own 3 s end in a kill.
    "RAY_JOB_STOP_WAIT_TIME_S": "150",
    # Where gradients meet: by the machine's name they would listen to its network.
    "GLOO_SOCKET_IFNAME": "lo",
}


def servers(folder: Path, ports: dict[str, int], sockets: Path) -> tuple[list[Service], list[Service]]:
    """Those that need no other, and those that need one of these. `sockets` is a short path, for Ray's."""
    head = node_command(NODE_CPUS, "--node-name=ray-head", *head_options(sockets / "head", ports["jobs"], ports["ray"]))
    # A folder of its own: each node unpacks the jobs' code anew, and would take it away from under the other's processes.
    node = node_command(NODE_CPUS, "--node-name=ray-node", f"--address={HOST}:{ports['ray']}", f"--temp-dir={sockets / 'node'}")
    return [
        mlflow_server.database(folder, ports),
        spark_servers.master(folder, ports),
        _ray("ray-head", _jobs(ports), head, folder, ports),
    ], [
        mlflow_server.server(folder, ports),
        spark_servers.worker(1, folder, ports),
        spark_servers.worker(2, folder, ports),
        _ray("ray-node", HOST, node, folder, ports),
    ]


def chosen_ports() -> dict[str, int]:
    """The usual ports, and free ones for those that are taken."""
    return {name: port if _is_free(port) else free_port() for name, port in PORTS.items()}


def write_conf(folder: Path, ports: dict[str, int]) -> None:
    """The files that the servers read, and Spark's clients."""
    spark_servers.write_conf(folder, ports)
    mlflow_server.write_conf(folder, ports)


def client_variables(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    """What a shell needs, but for MLflow's password."""
    return {
        "SPARK_CONF_DIR": str(folder / "conf/spark"),
        "SPARK_LOCAL_IP": HOST,
        "RAY_API_SERVER_ADDRESS": _jobs(ports),
        **VARIABLES,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(secret(folder, "ray-token")),
        "MLFLOW_TRACKING_URI": mlflow_server.address(ports),
        "MLFLOW_TRACKING_USERNAME": mlflow_server.USER,
    }


def _ray(name: str, address: str, command: list[str], folder: Path, ports: dict[str, int]) -> Service:
    """A node. Jobs inherit its environment, so that MLflow's password goes into no job's description."""
    inherited = {key: value for key, value in client_variables(folder, ports).items() if key.startswith(("RAY_AUTH", "MLFLOW_"))}
    variables = {
        **RAY_SETTINGS,
        **inherited,
        "MLFLOW_TRACKING_PASSWORD": content(mlflow_server.password(folder)),
        "LOCKSTEP_HOME": os.environ.get("LOCKSTEP_HOME") or os.getcwd(),
        "RAY_ADDRESS": f"{HOST}:{ports['ray']}",  # of several Rays on a machine, theirs
    }
    token = content(secret(folder, "ray-token"))

    def healthy() -> bool:
        told = asked(f"{_jobs(ports)}/nodes?view=summary", Authorization=f"Bearer {token}")
        nodes = [node["raylet"] for node in (told.get("data") or {}).get("summary", [])]
        return any(node.get("nodeName") == name and node.get("state") == "ALIVE" for node in nodes)

    # Jobs have been stopped before, and there is nothing else to wait for.
    return Service(name, address, command, variables, healthy, folder, stop=signal.SIGKILL, tries=3)


def _jobs(ports: dict[str, int]) -> str:
    return f"http://{HOST}:{ports['jobs']}"


def _is_free(port: int) -> bool:
    """Of no server; a connection that has just closed does not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
