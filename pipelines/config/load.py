"""From a YAML file and the command line to a `Config`, or to one line per fault.

    jobs/train.py conf/adult.yaml --train.workers 4 --source.tables.people.path /data/adult.csv

An override is a dotted key and a YAML value, or several as `--help` prints them. Both are merged before anything is checked,
so that a fault in either is reported in the same way; `--help` shows every setting with the file's values.
"""

import os
import sys
from pathlib import Path
from typing import Any

import tyro
from pydantic import ValidationError, create_model

from pipelines.config import flags as command_line
from pipelines.config.pipeline import Config
from pipelines.config.plugin_fields import fields_with_own
from pipelines.config.reading import read
from pipelines.config.section import shown
from pipelines.config.source import FileTableSettings
from pipelines.config.task import KINDS, settings_class
from pipelines.config.wording import lines
from pipelines.errors import ConfigError


def home() -> Path:
    """The folder in which relative paths start: LOCKSTEP_HOME, else the current one."""
    return Path(os.environ.get("LOCKSTEP_HOME") or "").absolute()


def from_command_line(program: str, arguments: list[str]) -> Config:
    """The config that a job's arguments describe, its relative paths resolved against LOCKSTEP_HOME.

    `--help` prints all settings and exits with 0. Raises ConfigError with one line per fault.
    """
    wants_help = any(argument in ("-h", "--help") for argument in arguments)
    arguments = [argument for argument in arguments if argument not in ("-h", "--help")]
    if not arguments or arguments[0].startswith("-"):
        usage = f"usage: {program} CONF.yaml [--section.setting VALUE ...]"
        if wants_help:
            print(f"{usage}\n\nAll settings, with a file's values: {program} CONF.yaml --help")
            sys.exit(0)
        raise ConfigError(f"{usage}\n{program}: the YAML file of a pipeline comes first (got {arguments[0] if arguments else 'nothing'})")
    path, overrides = arguments[0], command_line.read(arguments[1:], Config)
    sys.path.append(os.getcwd())  # where a task of one's own lies: of a script, Python only knows the folder of jobs
    config = load(path, overrides)
    if wants_help:
        shape = (tyro.conf.FlagConversionOff,)
        tyro.cli(type(config), default=config, args=["--help"], prog=f"{program} {path}", use_underscores=True, config=shape)
    return with_absolute_paths(config, home())


def load(path: str | Path, overrides: dict[str, Any] | None = None) -> Config:
    """The pipeline in a YAML file, with overrides by dotted key. Raises ConfigError with one line per fault."""
    values = read(path)
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    return parse(values, str(path), frozenset(overrides or {}))


def parse(values: dict[str, Any], origin: str, flags: frozenset[str] = frozenset()) -> Config:
    """Plain values as a Config. `origin` and `flags` (dotted keys given on the command line) only word the errors."""
    task = values.get("task")
    try:
        kind = settings_class(str(task.get("kind", "tabular"))) if isinstance(task, dict) else KINDS["tabular"]
    except ValueError as error:
        raise ConfigError(f"{origin}: task.kind: {error}") from error
    model = create_model("Config", __base__=Config, __doc__=Config.__doc__, task=(kind, ...), **fields_with_own(values, origin))
    command_line.fit(values, flags, model)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(lines(error, model, values, origin, flags))) from error


def with_absolute_paths(config: Config, folder: Path) -> Config:
    """The config with every relative path made absolute: a job's working directory may be an uploaded copy."""

    def absolute(path: str) -> str:
        return path if "://" in path or not path else str(folder / path)

    def table_paths(path: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return absolute(path) if isinstance(path, str) else tuple(map(absolute, path))

    tables = {
        name: table.model_copy(update={"path": table_paths(table.path)}) if isinstance(table, FileTableSettings) else table
        for name, table in config.source.tables.items()
    }
    uri = config.tracking.uri
    if uri.startswith("sqlite:///"):
        uri = "sqlite:///" + absolute(uri.removeprefix("sqlite:///"))
    return config.model_copy(
        update={
            "source": config.source.model_copy(update={"tables": tables}),
            "dataset": config.dataset.model_copy(update={"path": absolute(config.dataset.path)}),
            "train": config.train.model_copy(update={"storage": absolute(config.train.storage)}),
            "tracking": config.tracking.model_copy(update={"uri": uri}),
        }
    )


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--{dotted}: {section} is a value, not a section (got {shown(inner)})")
        values = inner
    values[last] = value
