"""The arguments of `jobs/report.py`. Reads configs, and nothing else, so that a fault in them is told at once."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Config, from_command_line, home
from pipelines.config.tracking import Tracking
from pipelines.errors import ConfigError

MOST_RUNS = 7
"""As many as there are colours."""
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class ReportArguments:
    uri: str
    """Address of MLflow."""
    runs: tuple[str | Config, ...]
    """IDs of runs, or else configs, each of which stands for its newest one."""
    file: Path | None
    """To write; None for one named after the runs."""


def read_arguments(program: str, arguments: list[str]) -> ReportArguments:
    """Read the command line. Beside IDs of runs, a config says where MLflow is, as for the other commands. Raises ConfigError for a
    config or a flag that is wrong, or if there are no runs."""
    parser = argparse.ArgumentParser(program, add_help=False, allow_abbrev=False)
    parser.add_argument("--output", "--out", default="")
    options, remaining = parser.parse_known_args(arguments)
    first_flag = next((place for place, argument in enumerate(remaining) if argument.startswith("-")), len(remaining))
    names, flags = remaining[:first_flag], remaining[first_flag:]
    run_ids = tuple(name for name in names if not name.endswith((".yaml", ".yml")))
    if not 1 <= (count := len(run_ids or names)) <= MOST_RUNS:
        raise ConfigError(f"{usage(program)}\n{program}: 1 to {MOST_RUNS} runs come first, by ID or by YAML (got {count or 'nothing'})")
    configs = {name: from_command_line(program, [name, *flags]) for name in names if name not in run_ids}
    uris = {config.tracking.uri for config in configs.values()} or {_uri(program, flags)}
    if len(uris) > 1:
        raise ConfigError(f"{' and '.join(configs)} name the servers {' and '.join(sorted(uris))}; set one with --tracking.uri")
    return ReportArguments(uris.pop(), run_ids or tuple(configs[name] for name in names), Path(options.output) if options.output else None)


def usage(program: str) -> str:
    return f"usage: {program} [CONF.yaml ...] [RUN_ID ...] [--section.setting VALUE ...] [--output FILE]"


def _uri(program: str, flags: list[str]) -> str:
    """The address for runs that are named by ID: that of the flag, or of the environment."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tracking.uri", dest="uri", default=Tracking().uri)
    options, unknown = parser.parse_known_args(flags)
    if unknown:
        raise ConfigError(f"{usage(program)}\n{unknown[0]}: with IDs of runs alone, there are only --tracking.uri and --output")
    file = str(options.uri).removeprefix(SQLITE)
    return f"{SQLITE}{home() / file}" if options.uri.startswith(SQLITE) and not os.path.isabs(file) else str(options.uri)
