"""The servers of a cluster on one machine: what each is started with, and how it is asked whether it is there."""

import base64
import importlib.util
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import postgres
from credentials import private, secret, write
from ray_head import head_options, node_command
from ray_on_loopback import HOST, VARIABLES
from service import Service
from sessions import free_port

PORTS = {"postgres": 5432, "mlflow": 5000, "spark": 7077, "spark-ui": 8080, "worker-1": 8081, "worker-2": 8082, "ray": 6379, "jobs": 8265}
MLFLOW_USER = "admin"
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
    with_master = {name: _spark(folder, name, ports) for name in ("spark-master", "spark-worker-1", "spark-worker-2")}
    ray = _ray_variables(folder, ports)
    head = node_command(NODE_CPUS, "--node-name=ray-head", *head_options(sockets, ports["jobs"], ports["ray"]))
    node = node_command(NODE_CPUS, "--node-name=ray-node", f"--address={HOST}:{ports['ray']}")
    jobs = f"http://{HOST}:{ports['jobs']}"
    data = Service(
        "postgres",
        f"{HOST}:{ports['postgres']}",
        postgres.command(folder, ports["postgres"]),
        {},
        lambda: postgres.answers(folder, ports["postgres"]),
        folder,
        stop=signal.SIGINT,  # it ends sessions and writes what there is to write
    )
    return [
        data,
        with_master["spark-master"],
        Service("ray-head", jobs, head, ray, lambda: "ray-head" in _ray_nodes(folder, jobs), folder, stop=signal.SIGKILL),
    ], [
        _mlflow(folder, ports),
        with_master["spark-worker-1"],
        with_master["spark-worker-2"],
        Service("ray-node", HOST, node, ray, lambda: "ray-node" in _ray_nodes(folder, jobs), folder, stop=signal.SIGKILL),
    ]


def chosen_ports() -> dict[str, int]:
    """The usual ports, and free ones for those that are taken."""
    return {name: port if _is_free(port) else free_port() for name, port in PORTS.items()}


def client_variables(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    """What a shell needs to use the cluster, but for the password of MLflow."""
    return {
        "SPARK_CONF_DIR": str(folder / "conf/spark"),
        "SPARK_LOCAL_IP": HOST,
        "RAY_API_SERVER_ADDRESS": f"http://{HOST}:{ports['jobs']}",
        **VARIABLES,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(secret(folder, "ray-token")),
        "MLFLOW_TRACKING_URI": f"http://{HOST}:{ports['mlflow']}",
        "MLFLOW_TRACKING_USERNAME": MLFLOW_USER,
    }


def password(folder: Path) -> Path:
    """The file with MLflow's password."""
    return secret(folder, "mlflow-password")


def write_conf(folder: Path, ports: dict[str, int]) -> None:
    """The files that the servers read; Spark's for whoever submits as well, who hears nothing below an error."""
    settings = {
        "spark.master": f"spark://{HOST}:{ports['spark']}",
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret(folder, "spark-secret").read_text().strip(),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }
    for name in ("spark", "spark-servers"):
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        write(private(folder / "conf" / name) / "spark-defaults.conf", "".join(lines))
    write(folder / "conf/spark/log4j2.properties", Path(__file__).with_name("spark").joinpath("log4j2.properties").read_text())
    login = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": _database(ports, "mlflow_auth"),
        "admin_username": MLFLOW_USER,
        "admin_password": password(folder).read_text().strip(),
        "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
    }
    lines = ["[mlflow]\n", *(f"{key} = {value}\n" for key, value in login.items())]
    write(folder / "conf/mlflow-auth.ini", "".join(lines))
    postgres.write_password_file(folder)


def _spark(folder: Path, name: str, ports: dict[str, int]) -> Service:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    home, master = Path(found.origin).parent, f"http://{HOST}:{ports['spark-ui']}"
    own = ["-p", str(ports["spark"]), "--webui-port", str(ports["spark-ui"])]
    if worker := name.removeprefix("spark-") if name != "spark-master" else "":
        place = ["-d", str(folder / "spark" / worker), "--webui-port", str(ports[worker])]
        own = ["-c", str(NODE_CPUS), "-m", "2g", *place, f"spark://{HOST}:{ports['spark']}"]
    kind = "worker.Worker" if worker else "master.Master"
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder / "conf/spark-servers"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "spark/local"),
        "SPARK_DAEMON_MEMORY": "512m",
    }

    def healthy() -> bool:
        told = _json(f"{master}/json/")
        if not worker:
            return bool(told.get("status") == "ALIVE")
        ui = f"http://{HOST}:{ports[worker]}"
        return any(one["webuiaddress"] == ui and one["state"] == "ALIVE" for one in told.get("workers", []))

    address = f"{HOST}:{ports[worker]}" if worker else f"spark://{HOST}:{ports['spark']}"
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "-h", HOST, *own]
    return Service(name, address, command, variables, healthy, folder)


def _database(ports: dict[str, int], name: str) -> str:
    return f"postgresql+psycopg://mlflow@{HOST}:{ports['postgres']}/{name}"


def _mlflow(folder: Path, ports: dict[str, int]) -> Service:
    address = f"http://{HOST}:{ports['mlflow']}"
    variables = {
        "MLFLOW_BACKEND_STORE_URI": _database(ports, "mlflow"),
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "conf/mlflow-auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secret(folder, "mlflow-key").read_text().strip(),
        "PGPASSFILE": str(folder / "conf/pgpass"),
        # Job execution serves features that are not used here, with processes that outlive the server.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    where = ["--host", HOST, "--port", str(ports["mlflow"]), "--artifacts-destination", str(folder / "artifacts")]
    command = ["mlflow", "server", "--app-name", "basic-auth", "--workers", "1", "--serve-artifacts", *where]
    header = base64.b64encode(f"{MLFLOW_USER}:{password(folder).read_text().strip()}".encode()).decode()

    def healthy() -> bool:
        asked = f"{address}/api/2.0/mlflow/experiments/get?experiment_id=0"
        return "experiment" in _json(asked, Authorization=f"Basic {header}")

    return Service("mlflow", address, command, variables, healthy, folder)


def _ray_variables(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    """A node's; jobs inherit them, so that the password of MLflow goes into no job's description."""
    home = os.environ.get("LOCKSTEP_HOME", os.getcwd())
    own = {"RAY_ADDRESS": f"{HOST}:{ports['ray']}", "LOCKSTEP_HOME": home}  # of several Rays on a machine, which is theirs
    variables = {name: value for name, value in client_variables(folder, ports).items() if name.startswith(("RAY_AUTH", "MLFLOW_"))}
    return {**RAY_SETTINGS, **variables, **own, "MLFLOW_TRACKING_PASSWORD": password(folder).read_text().strip()}


def _ray_nodes(folder: Path, jobs: str) -> set[str]:
    """Names of the nodes that the head takes for alive."""
    token = secret(folder, "ray-token").read_text().strip()
    told = _json(f"{jobs}/nodes?view=summary", Authorization=f"Bearer {token}")
    summary = (told.get("data") or {}).get("summary", [])
    return {node["raylet"]["nodeName"] for node in summary if node["raylet"].get("state") == "ALIVE"}


def _json(address: str, **headers: str) -> dict[str, Any]:
    """What a server says; nothing if it does not answer."""
    try:
        with urlopen(Request(address, headers=headers), timeout=5) as reply:
            return dict(json.load(reply))
    except (URLError, OSError, ValueError):
        return {}


def _is_free(port: int) -> bool:
    """Of no server; a connection that has just closed does not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
