"""What a session keeps to itself: where Spark listens, what its pages show, and who reads what it spills.

Under spark-submit the JVM runs before any of our code, so a variable comes too late, and Spark's UI listens where
SPARK_LOCAL_IP says, or everywhere. Settings do not: the context reads them, and it is started by the session.
"""

import re
import tempfile
from ipaddress import ip_address
from typing import Any

LOOPBACK = "127.0.0.1"
REDACTED = (
    r"(?i)secret|passw(or)?d|token|credential|(access|account|private|api)[._-]?key"  # names; Spark's own are among them
    r"|://[^/@\s]*:[^/@\s]+@"  # an address with a login in it
)
"""What matches in a setting's name or value is not shown by Spark's pages and not written into its logs."""


def private_settings(jvm: Any, master: str) -> dict[str, str]:
    """Settings of a new context on that master, but for those that were given: of a cluster, only what its pages hide."""
    wanted = {"spark.redaction.regex": REDACTED}
    if re.match(r"local(\[|$)", master):
        wanted |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if not _is_loopback(jvm.System.getenv("SPARK_LOCAL_IP")):
            wanted["spark.ui.enabled"] = "false"
        if not jvm.System.getenv("SPARK_LOCAL_DIRS") and not _given(jvm, "spark.local.dir"):
            wanted["spark.local.dir"] = _folder(jvm)
    return {key: value for key, value in wanted.items() if not _given(jvm, key)}


def _given(jvm: Any, key: str) -> bool:
    """Whether spark-submit or spark-defaults.conf set it."""
    return jvm.System.getProperty(key) is not None


def _folder(jvm: Any) -> str:
    """For what is shuffled and spilled, in files that Spark lets everyone read: a folder that nobody else enters."""
    folder = tempfile.mkdtemp(prefix="lockstep-spark-")
    jvm.java.io.File(folder).deleteOnExit()  # Spark has removed its own from it by then
    return folder


def _is_loopback(address: str | None) -> bool:
    try:
        return bool(address) and ip_address(str(address)).is_loopback
    except ValueError:
        return address == "localhost"
