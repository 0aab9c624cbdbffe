"""A dataset version to what a linear model reaches on it, in the same experiment.

spark-submit jobs/baseline.py conf/adult.yaml [--section.setting VALUE ...]
"""

import logging
import sys

from pipelines.errors import exit_on_error


def main() -> None:
    from pipelines.config import from_command_line  # what takes time is loaded where signals are heeded

    config = from_command_line("jobs/baseline.py", sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipelines").setLevel(logging.INFO)
    from pipelines.baseline import run  # Spark, torch and MLflow are loaded once the config holds

    print(", ".join(f"{name} {value:.4f}" for name, value in run(config).items()))


if __name__ == "__main__":
    exit_on_error(main)
