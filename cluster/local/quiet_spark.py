"""Installs our log settings into this environment's Spark: as a jar, since Java's class archive needs an empty folder of settings."""

import os
import zipfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

SETTINGS = Path(__file__).with_name("spark") / "log4j2.properties"


def spark_home() -> Path:
    """The folder of this environment's Spark."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def install() -> Path:
    """Write the jar, which spark-submit puts on the class path behind a folder of the user's settings, and return its path.

    An equal jar stays: Java ignores its class archive once a jar on the class path has another time.
    """
    jar = spark_home() / "jars" / "lockstep-log-settings.jar"
    content = _jar_content()
    if not jar.exists() or jar.read_bytes() != content:
        new = jar.with_suffix(f".{os.getpid()}")
        new.write_bytes(content)
        new.replace(jar)
    earlier = spark_home() / "conf" / SETTINGS.name  # where they used to be
    if earlier.exists() and earlier.read_bytes() == SETTINGS.read_bytes():
        earlier.unlink()
    return jar


def _jar_content() -> bytes:
    """Equal settings make equal bytes: the file in the jar has no time."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(zipfile.ZipInfo(SETTINGS.name), SETTINGS.read_bytes())
    return content.getvalue()


if __name__ == "__main__":
    install()
