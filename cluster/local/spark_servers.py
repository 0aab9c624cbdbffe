"""A Spark master and its workers, which authenticate with a shared secret."""

import os
from collections.abc import Callable
from typing import Any

from credentials import content, private, secret, write
from http_json import get_json
from places import Places
from quiet_spark import SETTINGS, spark_home
from service import Service

PROMETHEUS = """\
*.sink.prometheusServlet.class=org.apache.spark.metrics.sink.PrometheusServlet
*.sink.prometheusServlet.path=/metrics/prometheus/
master.sink.prometheusServlet.path=/metrics/master/prometheus/
applications.sink.prometheusServlet.path=/metrics/applications/prometheus/
"""
"""Settings of Spark's metrics, which the servers' pages then also give in Prometheus's format."""
WORKER_CPUS = max(1, (os.cpu_count() or 1) // 2)


def master(places: Places) -> Service:
    options = ["-p", str(places.ports["spark"]), "--webui-port", str(places.ports["spark-ui"])]
    return _service("spark-master", places, address(places), "master.Master", options, lambda: "status" in _status(places))


def worker(number: int, places: Places) -> Service:
    name = f"worker-{number}"
    size = ["-c", str(WORKER_CPUS), "-m", "2g"]
    options = [*size, "-d", str(places.folder / "spark" / name), "--webui-port", str(places.ports[name]), address(places)]
    page = f"http://{places.at(name)}"

    def healthy() -> bool:
        return any(worker["webuiaddress"] == page and worker["state"] == "ALIVE" for worker in _status(places).get("workers", []))

    return _service(f"spark-{name}", places, page, "worker.Worker", options, healthy)


def address(places: Places) -> str:
    return f"spark://{places.at('spark')}"


def write_conf(places: Places) -> None:
    """Write the configuration of the servers, and that of clients on the master's host, which log only errors."""
    front = places.host("spark-master").address
    settings = {
        "spark.master": address(places),
        "spark.authenticate": "true",
        "spark.authenticate.secret": content(secret(places.folder, "spark-secret")),
        "spark.driver.host": front,
        "spark.driver.bindAddress": front,
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
        "spark.worker.cleanup.enabled": "true",
        # The timeout, in seconds, is checked as often: a lost host is detected within 10 s, by default within two minutes. The
        # second setting counts timeouts: the master remembers a lost host for a quarter of an hour, as by default.
        "spark.worker.timeout": "5",
        "spark.dead.worker.persistence": "191",
    }
    for name in ("spark", "spark-servers"):
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        write(private(places.folder / "conf" / name) / "spark-defaults.conf", "".join(lines))
    write(places.folder / "conf/spark-servers/metrics.properties", PROMETHEUS)
    quiet = SETTINGS.read_text(encoding="utf-8")
    write(places.folder / "conf/spark/log4j2.properties", quiet)
    write(places.folder / "conf/spark-servers/log4j2.properties", quiet.replace("rootLogger.level = error", "rootLogger.level = info"))


def _service(name: str, places: Places, page: str, kind: str, options: list[str], healthy: Callable[[], bool]) -> Service:
    home, host = spark_home(), places.host(name)
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(places.folder / "conf/spark-servers"),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_LOCAL_DIRS": str(places.folder / "spark/local"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "-h", host.address, *options]
    return Service(name, page, [*host.enter, *command], variables, healthy, places.folder)


def _status(places: Places) -> dict[str, Any]:
    """The master's status, with that of its workers."""
    return get_json(f"http://{places.at('spark-ui')}/json/")
