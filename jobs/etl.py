"""Raw tables to a dataset version.

spark-submit jobs/etl.py conf/adult.yaml [--section.setting VALUE ...]
"""

import logging
import sys

from pipelines.errors import exit_on_error


def main() -> None:
    from pipelines.config import from_command_line  # what takes time is loaded where signals are heeded

    config = from_command_line("jobs/etl.py", sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipelines").setLevel(logging.INFO)
    from pipelines.etl.run import run  # Spark is loaded once the config holds
    from pipelines.etl.summary import summary

    print(summary(config, run(config)))


if __name__ == "__main__":
    exit_on_error(main)
