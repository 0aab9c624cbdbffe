"""Reads what all commands have in common, a config and its settings, `--quiet`, `--json` or `--verbose`, and flags; ends their process."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.errors import ConfigError, LockstepError
from pipelines.runtime.compat.python import finish_threads_and_exit_functions
from pipelines.runtime.interrupts import exit_on_signals, is_not_caused_by_signal
from pipelines.runtime.output import exit_when_reader_leaves, open_closed_streams

if TYPE_CHECKING:
    from pipelines.config import Config

Flags = Mapping[str, Mapping[str, Any]]
"""What `ArgumentParser.add_argument` takes, by flag."""


def read_config_and_output(program: str, arguments: list[str], own_flags: str = "") -> "Config":
    """The config; `--quiet`, `--json` and `--verbose` among the arguments say how the command tells of its progress. `own_flags` shows
    those of the command itself in its usage."""
    config_arguments, output_flag = split_output_flag(arguments)
    config = read_config_argument(program, config_arguments, own_flags=own_flags)
    speak_as(output_flag)
    return config


def split_output_flag(arguments: list[str]) -> tuple[list[str], str]:
    """The other arguments, and `--quiet`, `--json` or `--verbose` if it is among them."""
    output_flags = [flag for flag in ("--quiet", "--json", "--verbose") if flag in arguments]
    if len(output_flags) > 1:
        raise ConfigError(f"{' and '.join(output_flags)} exclude each other; give one of them")
    return [argument for argument in arguments if argument not in output_flags], "".join(output_flags)


def speak_as(output_flag: str) -> None:
    """With `--quiet`, tell and log warnings and errors only; with `--verbose`, log details too; with `--json`, do both in lines of JSON, to
    standard output. Without a flag, change nothing."""
    if not output_flag:
        return
    from pipelines.runtime.progress import JsonLines, speak

    match output_flag:
        case "--verbose":
            logging.getLogger("pipelines").setLevel(logging.DEBUG)
        case "--quiet":
            speak("quiet")
            logging.getLogger("pipelines").setLevel(logging.WARNING)
        case "--json":
            speak("json")
            for handler in logging.getLogger().handlers:
                handler.setFormatter(JsonLines())
                if isinstance(handler, logging.StreamHandler):
                    handler.setStream(sys.stdout)


def read_flags(
    program: str, usage: str, flags: Flags, arguments: list[str], level: int = logging.INFO
) -> tuple[argparse.Namespace, "Config"]:
    """The values of a command's own flags, and its config, which all other arguments are of. `usage` shows the own flags."""
    options, config_arguments = split_flags(program, usage, flags, arguments)
    return options, read_config_argument(program, config_arguments, level, usage)


def split_flags(program: str, usage: str, flags: Flags, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The values of a command's own flags, and all other arguments."""
    parser = argparse.ArgumentParser(program, f"{program} CONF.yaml {usage}", add_help=False, allow_abbrev=False)
    for flag, keywords in flags.items():
        parser.add_argument(flag, **keywords)
    check_flags_once([flag for flag, keywords in flags.items() if keywords.get("action") != "append"], arguments)
    return parser.parse_known_args(arguments)


def check_flags_once(flags: Iterable[str], arguments: list[str]) -> None:
    """Raise ConfigError if one of the flags stands among the arguments twice, of which argparse would take the last."""
    for flag in flags:
        if sum(argument == flag or argument.startswith(f"{flag}=") for argument in arguments) > 1:
            raise ConfigError(f"{flag} stands twice; give it once")


def read_config_argument(program: str, arguments: list[str], level: int = logging.INFO, own_flags: str = "") -> "Config":
    """The config of a command, whose log lines go to stderr from now on. `own_flags` shows those of the command itself in its usage."""
    from pipelines.config import from_command_line  # slow imports come after the signal handlers are installed

    config = from_command_line(program, arguments, own_flags)
    log_to_stderr(level)
    return config


def log_to_stderr(level: int) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.addFilter(is_not_caused_by_signal)
    logging.getLogger("pipelines").setLevel(level)


def exit_on_error(main: Callable[[], None]) -> NoReturn:
    """Run a job's `main`, and end the process: with exit code 0, if nothing raises.

    A LockstepError prints its message to stderr and exits with its code. SIGINT, SIGTERM and SIGHUP exit with 130, 143 and 129, and a
    closed pipe on standard output with 141, without a traceback.
    """
    open_closed_streams()
    try:
        with exit_when_reader_leaves(), exit_on_signals():
            main()
    except LockstepError as error:
        # A ConfigError has a line for each fault, which begins with the file, as in a compiler's errors.
        print(error if isinstance(error, ConfigError) else f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    _exit_at_once()


def _exit_at_once() -> NoReturn:
    """End this process as the interpreter does, but without freeing what it has imported: for a million objects of torch, Ray and MLflow,
    that takes a second."""
    can_end = finish_threads_and_exit_functions()
    sys.stdout.flush()
    sys.stderr.flush()
    if can_end:
        os._exit(0)
    sys.exit(0)
