"""Turns a YAML file and command-line flags into a `Config`, or reports one line per error.

    jobs/train.py conf/adult.yaml --train.workers 4 --source.tables.people.path /data/adult.csv

An override is a dotted key with a YAML value, or with several words, as `--help` prints lists. File and flags are merged before
they are validated, so errors in either are reported in the same way. `--help` shows
the usual settings with the values of the file, and `--help all` every one.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.config import flags as command_line
from pipelines.config.effects import ineffective_settings
from pipelines.config.help import help_text, is_topic, short_help
from pipelines.config.messages.validation_errors import error_lines, show_value
from pipelines.config.paths import absolute_path, home
from pipelines.config.pipeline import Config
from pipelines.config.reading import read_yaml_file
from pipelines.config.section import expand_kind
from pipelines.config.source.source import PathTableSettings
from pipelines.config.train.defaults import convert_to_task, fill_train_defaults
from pipelines.config.train.init_from import expand_run
from pipelines.config.train.strategy import STRATEGIES
from pipelines.errors import ConfigError

log = logging.getLogger(__name__)

SHORT_SECTIONS = ("task", "train.parallel", "train.balance", "train.strategy.compression", "task.number_embedding", "tune.scheduler")
"""Sections that a file may give by the name of their kind alone, so that a flag for a setting in them finds a text."""


def from_command_line(program: str, arguments: list[str], own_flags: str = "") -> Config:
    """The config that the arguments of a command describe, with relative paths resolved against LOCKSTEP_HOME.

    `--help` prints the usual settings, `--help all` every one, and exits with 0; `own_flags` shows in its usage what the command takes
    besides settings. Raises ConfigError with one line per error.
    """
    own_flags = own_flags and f" {own_flags}"
    arguments, topic = _split_help(arguments)
    wants_help = topic is not None
    if not arguments or arguments[0].startswith("-"):
        usage = f"usage: {program} CONF.yaml{own_flags} [--section.setting VALUE ...]"
        if wants_help:
            print(f"{usage}\n\nThe usual settings with the values of a file: {program} CONF.yaml --help")
            print(f"Every setting: {program} CONF.yaml --help all")
            sys.exit(0)
        raise ConfigError(
            f"{usage}\n{program}: the first argument must be the YAML file of a pipeline (got {arguments[0] if arguments else 'nothing'})"
        )
    path, overrides = arguments[0], command_line.parse_flags(arguments[1:], Config)
    sys.path.append(os.getcwd())  # for tasks of one's own: a script has only its own folder on the path
    config = load(path, overrides)
    if topic is not None:
        text = help_text(config, topic) if topic else short_help(config, f"{program} {path} --help")
        print(f"usage: {program} {path}{own_flags} [--section.setting VALUE ...]\n\n{text}")
        sys.exit(0)
    return with_absolute_paths(config, home())


def _split_help(arguments: list[str]) -> tuple[list[str], str | None]:
    """The arguments without `--help` and its topic, and that topic; None without `--help`."""
    place = next((place for place, argument in enumerate(arguments) if argument in ("-h", "--help")), None)
    if place is None:
        return arguments, None
    topics = [word for word in arguments[place + 1 : place + 2] if is_topic(word, Config)]
    return [*arguments[:place], *arguments[place + 1 + len(topics) :]], "".join(topics)


def load(path: str | Path, overrides: dict[str, Any] | None = None) -> Config:
    """The pipeline in a YAML file, with overrides by dotted key. Raises ConfigError with one line per error."""
    return parse_with_overrides(read_yaml_file(path), overrides or {}, str(path))


def parse_with_overrides(values: dict[str, Any], overrides: Mapping[str, Any], origin: str) -> Config:
    """Validates plain values, in which each override has replaced the setting of its dotted key. Raises as `parse` does."""
    values = _override_task_kind(values, overrides, origin)
    for key, value in sorted(overrides.items(), key=lambda override: override[0].count(".")):  # a section before its settings
        _set(values, key, value)
    return parse(values, origin, frozenset(overrides))


def _override_task_kind(values: dict[str, Any], overrides: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values of a file for the kind of task that overrides name, and a warning with what is left out: a network's settings are none of
    trees."""
    section = expand_kind(overrides.get("task", {}))
    kind = overrides.get("task.kind", section.get("kind") if isinstance(section, Mapping) else None)
    old = expand_kind(values.get("task"))
    old_kind = old.get("kind", "tabular") if isinstance(old, Mapping) else None
    if not isinstance(kind, str) or kind == old_kind:
        return values
    values, left_out = convert_to_task({**values, "task": old}, {"kind": kind})
    left_out = [name for name in left_out if name not in overrides and not ("task" in overrides and name.startswith("task."))]
    if left_out:
        log.warning(
            "%s: task.kind is %s, so that of its settings for %s these are left out: %s", origin, kind, old_kind, ", ".join(left_out)
        )
    return values


def parse(values: dict[str, Any], origin: str, flags: frozenset[str] = frozenset(), recorded: bool = False) -> Config:
    """Validates plain values. `origin` and `flags` (dotted keys given on the command line) are used only in error messages.

    Raises ConfigError with one line per error, also for a setting that is given and has no effect, unless the values are those that a
    run has `recorded`.
    """
    values = {**values, "task": expand_kind(values["task"])} if "task" in values else values
    values = fill_train_defaults(values)
    command_line.convert_flag_values(values, flags, Config)
    try:
        config = Config.model_validate(values, context={"recorded": recorded})
    except ValidationError as error:
        raise ConfigError("\n".join(error_lines(error, Config, values, origin, flags))) from error
    if not recorded and (faults := list(ineffective_settings(config))):
        raise ConfigError("\n".join(f"{_place(name, origin, flags)}: {fault}" for name, fault in faults))
    return config


def _place(name: str, origin: str, flags: frozenset[str]) -> str:
    """Where a setting is given: by a flag of its own or of its section, as `--train.balance auto` gives `train.balance.kind`, or in the
    file."""
    keys = name.split(".")
    flag_name = next((flag for end in range(len(keys), 0, -1) if (flag := ".".join(keys[:end])) in flags), "")
    return f"--{flag_name}" if flag_name else f"{origin}: {name}"


def absolute_uri(uri: str, folder: Path) -> str:
    """The address of MLflow with an SQLite file that starts at `folder` if its path is relative."""
    return f"sqlite:///{absolute_path(uri.removeprefix('sqlite:///'), folder)}" if uri.startswith("sqlite:///") else uri


def with_absolute_paths(config: Config, folder: Path) -> Config:
    """The config with every relative path made absolute, because the working directory of a job may be an uploaded copy."""

    def resolve(path: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return absolute_path(path, folder) if isinstance(path, str) else tuple(absolute_path(part, folder) for part in path)

    at_paths = {name: table for name, table in config.source.tables.items() if isinstance(table, PathTableSettings)}
    tables = {name: table.model_copy(update={"path": resolve(table.path)}) for name, table in at_paths.items()}
    uri = absolute_uri(config.tracking.uri, folder)
    paths = {"dataset": "path", "train": "storage", "export": "path", "endpoint": "token_file"}
    sections = {name: getattr(config, name) for name in paths}
    changes = {name: section.model_copy(update={paths[name]: resolve(getattr(section, paths[name]))}) for name, section in sections.items()}
    origin, train = config.train.init_from, changes["train"]
    origin = origin.model_copy(update={name: absolute_path(getattr(origin, name), folder) for name in ("file", "folder")})
    changes["train"] = train.model_copy(update={"init_from": origin}) if origin.is_given else train
    changes["source"] = config.source.model_copy(update={"tables": {**config.source.tables, **tables}})
    return config.model_copy(update={**changes, "tracking": config.tracking.model_copy(update={"uri": uri})})


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the value of a dotted key in nested plain values, in which sections may be missing, or have their short form."""
    *sections, last = dotted.split(".")
    for number, section in enumerate(sections, 1):
        path, inner = ".".join(sections[:number]), values.setdefault(section, {})
        if path == "train.strategy":
            inner = values[section] = STRATEGIES.expand(inner)
        elif path in SHORT_SECTIONS:
            inner = values[section] = expand_kind(inner)
        elif path == "train.init_from":
            inner = values[section] = expand_run(inner)
        if not isinstance(inner, dict):
            raise ConfigError(f"--{dotted}: {section} is a value, not a section; write --{path} VALUE (got {show_value(inner)})")
        values = inner
    values[last] = value
