"""Installs our log settings into this environment's Spark, where spark-submit finds them unless SPARK_CONF_DIR is set."""

import shutil
from importlib.util import find_spec
from pathlib import Path

SETTINGS = Path(__file__).with_name("spark") / "log4j2.properties"


def install() -> Path:
    """Copy the settings, unless the folder has some, and return their path."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    place = Path(spec.submodule_search_locations[0]) / "conf" / SETTINGS.name
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        shutil.copyfile(SETTINGS, place)
    return place


if __name__ == "__main__":
    install()
