"""Others on the machine and its network do not reach a Spark that `spark-submit jobs/…` starts here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.spark.context import private_settings

ROOT = Path(__file__).parents[2]
PLANTED = ("planted-one", "planted-two", "planted-three")
LOOKING = """
import json
import os
import sys
import urllib.request
from pathlib import Path

import psutil

from pipelines.spark.session import session

spark = session("looking")


def listening(_):
    return {tuple(socket.laddr)[:1] for process in psutil.Process(JVM).children(recursive=True) + [psutil.Process(JVM)]
            for socket in process.net_connections("inet") if socket.status == psutil.CONN_LISTEN}


JVM = psutil.Process().ppid()
addresses = {address for (address,) in listening(None)}
counted = spark.range(100).repartition(4).rdd.mapPartitions(lambda rows: [(sum(1 for _ in rows), sorted(listening(None)))]).collect()
addresses |= {address for _, partition in counted for (address,) in partition}
folder = spark.sparkContext.getConf().get("spark.local.dir", "")
report = {
    "rows": sum(rows for rows, _ in counted),
    "addresses": sorted(addresses),
    "folder": folder,
    "mode": Path(folder).stat().st_mode & 0o777 if folder else None,
    "spilled": [name for name in os.listdir(folder)] if folder else [],
    "page": "",
}
if url := spark.sparkContext.uiWebUrl:
    application = spark.sparkContext.applicationId
    report["page"] = urllib.request.urlopen(f"{url}/api/v1/applications/{application}/environment").read().decode()
print(json.dumps(report))
"""


def inspect_spark(folder: Path, *options: str, **variables: str) -> dict[str, Any]:
    script = folder / "looking.py"
    script.write_text(LOOKING)
    environment = {name: value for name, value in os.environ.items() if name == "SPARK_SUBMIT_OPTS" or "SPARK_" not in name}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment |= {"PATH": path, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **variables}
    process = subprocess.run(
        ["spark-submit", *options, str(script)], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
    report: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    assert report["rows"] == 100
    return report


def is_loopback_only(addresses: list[str]) -> bool:
    return bool(addresses) and set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.full
def test_it_listens_on_loopback_alone_and_nobody_else_enters_its_folder(tmp_path: Path) -> None:
    report = inspect_spark(tmp_path)
    assert is_loopback_only(report["addresses"]), report
    assert report["page"] == "", "without SPARK_LOCAL_IP its UI would listen everywhere"
    assert (report["mode"], Path(report["folder"]).parent) == (0o700, tmp_path)
    assert any(name.startswith("blockmgr-") for name in report["spilled"])
    assert not Path(report["folder"]).exists(), "what Spark kept there goes with it"


@pytest.mark.full
def test_its_pages_are_this_machine_s_and_show_no_secret(tmp_path: Path) -> None:
    secrets = {
        "spark.hadoop.fs.azure.account.key.store": PLANTED[0],
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": PLANTED[1],
        "spark.hadoop.database": f"jdbc:postgresql://someone:{PLANTED[2]}@host/base",
        "spark.ui.port": "0",
    }
    options = [part for key, value in secrets.items() for part in ("--conf", f"{key}={value}")]
    report = inspect_spark(tmp_path, *options, SPARK_LOCAL_IP="127.0.0.1")
    assert is_loopback_only(report["addresses"]), report
    assert "spark.hadoop.database" in report["page"]
    assert not [secret for secret in PLANTED if secret in report["page"]]


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://host", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_s_addresses_are_its_own(spark: SparkSession, master: str) -> None:
    assert private_settings(spark._jvm, master).keys() == {"spark.redaction.regex"}


def test_what_was_given_stays(spark: SparkSession) -> None:
    """The tests' session was given its UI."""
    settings = private_settings(spark._jvm, "local[2]")
    assert settings.keys() == {"spark.redaction.regex", "spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"}
