"""The commands: `jobs/NAME.py` and `lockstep NAME` run the same ones.

Each reads a config, so that a fault in it is said at once, and only then loads what it calls.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, exit_on_error

if TYPE_CHECKING:
    from pipelines.config import Config

Command = Callable[[str, list[str]], None]
"""Takes what it is called by, and its arguments."""


def etl(program: str, arguments: list[str]) -> None:
    """Raw tables to a dataset version."""
    config = _config(program, arguments)
    from pipelines.api import prepare
    from pipelines.etl.summary import summary

    print(summary(config, prepare(config)))


def train(program: str, arguments: list[str]) -> None:
    """A dataset version to a tracked model."""
    config = _config(program, arguments)
    from pipelines.api import train

    train(config)


def verify(program: str, arguments: list[str]) -> None:
    """Whether a run comes out the same, bit for bit, when it is trained again: exit code 0 if so, 1 if not."""
    parser = argparse.ArgumentParser(program, add_help=False, allow_abbrev=False)
    parser.add_argument("--run", default="")
    parser.add_argument("--steps", type=int)
    own, others = parser.parse_known_args(arguments)
    config = _config(f"{program} --run RUN_ID [--steps FIRST_STEPS]", others, logging.WARNING)
    if not own.run or (own.steps is not None and own.steps < 1):
        raise ConfigError(f"--run is {own.run!r} and --steps {own.steps}; the first names the run to verify, the second is at least 1")
    from pipelines.api import verify

    sys.exit(not verify(config, own.run, own.steps))


def baseline(program: str, arguments: list[str]) -> None:
    """A dataset version to what a linear model reaches on it, in the same experiment."""
    config = _config(program, arguments)
    from pipelines.api import baseline

    print(", ".join(f"{name} {value:.4f}" for name, value in baseline(config).items()))


COMMANDS: dict[str, Command] = {"etl": etl, "train": train, "verify": verify, "baseline": baseline}


def run(name: str, program: str) -> None:
    """A command on this process's arguments, from its first line to its exit code."""
    exit_on_error(partial(COMMANDS[name], program, sys.argv[1:]))


def main() -> None:
    """`lockstep NAME CONF.yaml [--section.setting VALUE ...]`, in the console."""
    exit_on_error(partial(_chosen, *sys.argv[1:2], arguments=sys.argv[2:]))


def _chosen(name: str = "", *, arguments: list[str]) -> None:
    commands = "".join(f"\n  {command:10}{function.__doc__}" for command, function in COMMANDS.items())
    usage = f"usage: lockstep COMMAND CONF.yaml [--section.setting VALUE ...]\n{commands}"
    if name in ("-h", "--help"):
        print(f"{usage}\n\nA command's settings: lockstep COMMAND CONF.yaml --help")
    elif name not in COMMANDS:
        raise ConfigError(f"{usage}\nlockstep: a command comes first (got {name or 'nothing'})")
    else:
        COMMANDS[name](f"lockstep {name}", arguments)


def _config(program: str, arguments: list[str], level: int = logging.INFO) -> "Config":
    from pipelines.config import from_command_line  # what takes time is loaded where signals are heeded

    config = from_command_line(program, arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pipelines").setLevel(level)
    return config
