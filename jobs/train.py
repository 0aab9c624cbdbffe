"""A dataset version to a tracked model.

python jobs/train.py conf/adult.yaml [--section.setting VALUE ...]
ray job submit --working-dir . -- python jobs/train.py conf/adult.yaml
"""

import logging
import sys

from pipelines.errors import exit_on_error


def main() -> None:
    from pipelines.config import from_command_line  # what takes time is loaded where signals are heeded

    config = from_command_line("jobs/train.py", sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipelines").setLevel(logging.INFO)
    from pipelines.launch.run import train  # torch, Ray and MLflow are loaded once the config holds

    train(config)


if __name__ == "__main__":
    exit_on_error(main)
