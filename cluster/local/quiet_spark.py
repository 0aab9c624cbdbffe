"""Give the Spark of this environment our log settings, where its spark-submit looks for them unless SPARK_CONF_DIR says otherwise."""

import shutil
from importlib.util import find_spec
from pathlib import Path

SETTINGS = Path(__file__).with_name("spark") / "log4j2.properties"


def install() -> Path:
    """Copy the settings, unless the folder has its own; return where they are."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    place = Path(spec.submodule_search_locations[0]) / "conf" / SETTINGS.name
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        shutil.copyfile(SETTINGS, place)
    return place


if __name__ == "__main__":
    install()
