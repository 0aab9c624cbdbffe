"""Installs our settings into this environment's Spark: of its log, and the options of its Java for a plain spark-submit.

Those of the log are a jar, since Java's class archive needs an empty folder of settings. For the same reason, the script with Java's
options, which Spark's own scripts read in that folder, names another one.
"""

import os
import zipfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from pipelines.spark.java_options import SHORT_JOB_OPTIONS, archive_options, archive_path

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


SPARK_ENV = """# By Lockstep, for a plain spark-submit: options of Java, unless there are some, as in pipelines/spark/java_options.py.
if [ -z "${{SPARK_SUBMIT_OPTS:-}}" ]; then
  SPARK_SUBMIT_OPTS="{options}"
  if [ -f "{archive}" ]; then SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS {archive_options}"; fi
fi
# Java takes its archive of classes only with an empty folder of settings; files of a user's own in this folder matter more.
if [ "$(ls -A "$SPARK_CONF_DIR")" = spark-env.sh ]; then SPARK_CONF_DIR="{empty}"; fi
"""


def install_options() -> Path | None:
    """Write the script that Spark's own scripts run first, and return its path; or None, if there is one that we have not written.

    They cannot run one in a folder whose name has a space.
    """
    file, empty = spark_home() / "conf" / "spark-env.sh", spark_home() / "empty-conf"
    if " " in str(file) or (file.exists() and "Lockstep" not in file.read_text(encoding="utf-8", errors="replace")):
        return None
    for folder in (file.parent, empty):
        folder.mkdir(exist_ok=True)
    options = {"options": " ".join(SHORT_JOB_OPTIONS), "archive": archive_path(), "archive_options": " ".join(archive_options())}
    file.write_text(SPARK_ENV.format(**options, empty=empty), encoding="utf-8")
    return file


def _jar_content() -> bytes:
    """Equal settings make equal bytes: the file in the jar has no time."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(zipfile.ZipInfo(SETTINGS.name), SETTINGS.read_bytes())
    return content.getvalue()


if __name__ == "__main__":
    install()
    install_options()
