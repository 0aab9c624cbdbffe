"""A Spark master and its workers, whose processes share a secret."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asking import asked
from credentials import content, private, secret, write
from ray_on_loopback import HOST
from service import Service

WORKER_CPUS = max(1, (os.cpu_count() or 1) // 2)


def master(folder: Path, ports: dict[str, int]) -> Service:
    own = ["-p", str(ports["spark"]), "--webui-port", str(ports["spark-ui"])]
    return _service("spark-master", folder, f"spark://{HOST}:{ports['spark']}", "master.Master", own, lambda: "status" in _told(ports))


def worker(number: int, folder: Path, ports: dict[str, int]) -> Service:
    name = f"worker-{number}"
    size = ["-c", str(WORKER_CPUS), "-m", "2g"]
    own = [*size, "-d", str(folder / "spark" / name), "--webui-port", str(ports[name]), f"spark://{HOST}:{ports['spark']}"]
    page = f"http://{HOST}:{ports[name]}"

    def healthy() -> bool:
        return any(one["webuiaddress"] == page and one["state"] == "ALIVE" for one in _told(ports).get("workers", []))

    return _service(f"spark-{name}", folder, page, "worker.Worker", own, healthy)


def write_conf(folder: Path, ports: dict[str, int]) -> None:
    """For the servers, and for whoever submits, who hears nothing below an error."""
    settings = {
        "spark.master": f"spark://{HOST}:{ports['spark']}",
        "spark.authenticate": "true",
        "spark.authenticate.secret": content(secret(folder, "spark-secret")),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }
    for name in ("spark", "spark-servers"):
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        write(private(folder / "conf" / name) / "spark-defaults.conf", "".join(lines))
    quiet = Path(__file__).with_name("spark") / "log4j2.properties"
    write(folder / "conf/spark/log4j2.properties", quiet.read_text())


def _service(name: str, folder: Path, address: str, kind: str, own: list[str], healthy: Callable[[], bool]) -> Service:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    home = Path(found.origin).parent
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder / "conf/spark-servers"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "spark/local"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "-h", HOST, *own]
    return Service(name, address, command, variables, healthy, folder)


def _told(ports: dict[str, int]) -> dict[str, Any]:
    """What the master says of itself and its workers."""
    return asked(f"http://{HOST}:{ports['spark-ui']}/json/")
