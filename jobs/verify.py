"""Whether a run comes out the same, bit for bit, when it is trained again: exit code 0 if so, 1 if not.

python jobs/verify.py conf/adult.yaml --run RUN_ID [--steps FIRST_STEPS] [--section.setting VALUE ...]
"""

import argparse
import logging
import sys

from pipelines.errors import ConfigError, exit_on_error


def main() -> None:
    from pipelines.config import from_command_line  # what takes time is loaded where signals are heeded

    parser = argparse.ArgumentParser("jobs/verify.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--run", default="")
    parser.add_argument("--steps", type=int)
    own, others = parser.parse_known_args()
    config = from_command_line("jobs/verify.py --run RUN_ID [--steps FIRST_STEPS]", others)
    if not own.run or (own.steps is not None and own.steps < 1):
        raise ConfigError(f"--run is {own.run!r} and --steps {own.steps}; the first names the run to verify, the second is at least 1")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    from pipelines.launch.verify import verify  # torch, Ray and MLflow are loaded once the config holds

    sys.exit(not verify(config, own.run, own.steps))


if __name__ == "__main__":
    exit_on_error(main)
