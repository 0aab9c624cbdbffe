"""Keeps a session private: the addresses Spark listens on, the settings that its UI shows, and the files that it spills.

Under spark-submit the JVM starts before any code of ours, too early for environment variables: Spark's UI listens on
SPARK_LOCAL_IP, or everywhere. Settings still work, since the context reads them when the session starts it.
"""

import tempfile
from ipaddress import ip_address
from typing import Any

from pipelines.runtime.spark_master import is_local

LOOPBACK = "127.0.0.1"
REDACTED = (
    r"(?i)secret|passw(or)?d|token|credential|(access|account|private|api)[._-]?key"  # names, including those of Spark's own pattern
    r"|://[^/@\s]*:[^/@\s]+@"  # a URL with a login
)
"""Spark redacts settings whose name or value matches, in its UI and logs."""


def private_settings(jvm: Any, master: str) -> dict[str, str]:
    """Settings of a new context on that master, except those that the user set. On a cluster only the redaction is set."""
    settings = {"spark.redaction.regex": REDACTED}
    if is_local(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if not _is_loopback(jvm.System.getenv("SPARK_LOCAL_IP")):
            settings["spark.ui.enabled"] = "false"
        if not jvm.System.getenv("SPARK_LOCAL_DIRS") and not _is_set(jvm, "spark.local.dir"):
            settings["spark.local.dir"] = _folder(jvm)
    return {key: value for key, value in settings.items() if not _is_set(jvm, key)}


def _is_set(jvm: Any, key: str) -> bool:
    """Whether spark-submit or spark-defaults.conf set it."""
    return jvm.System.getProperty(key) is not None


def _folder(jvm: Any) -> str:
    """A folder that only this user can enter, for shuffled and spilled data, which Spark makes readable to everyone."""
    folder = tempfile.mkdtemp(prefix="lockstep-spark-")
    jvm.java.io.File(folder).deleteOnExit()  # by then Spark has removed its own files
    return folder


def _is_loopback(address: str | None) -> bool:
    try:
        return bool(address) and ip_address(str(address)).is_loopback
    except ValueError:
        return address == "localhost"
