"""Installs our log settings into this environment's Spark: as a jar, since Java's class archive needs an empty folder of settings."""

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

SETTINGS = Path(__file__).with_name("spark") / "log4j2.properties"


def spark_home() -> Path:
    """The folder of this environment's Spark."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def install() -> Path:
    """Write the jar, which spark-submit puts on the class path behind a folder of the user's settings, and return its path."""
    jar = spark_home() / "jars" / "lockstep-log-settings.jar"
    new = jar.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(new, "w") as file:
        file.writestr(zipfile.ZipInfo(SETTINGS.name), SETTINGS.read_bytes())  # without a time: equal settings make equal jars
    new.replace(jar)
    earlier = spark_home() / "conf" / SETTINGS.name  # where they used to be
    if earlier.exists() and earlier.read_bytes() == SETTINGS.read_bytes():
        earlier.unlink()
    return jar


if __name__ == "__main__":
    install()
