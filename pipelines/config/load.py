"""From a YAML file and the command line to a `Config`, or to one line per fault.

    jobs/train.py conf/adult.yaml --train.workers 4 --source.tables.people.path /data/adult.csv

An override is a dotted key and a YAML value. Both are merged before anything is checked, so that a fault in either is
reported in the same way; `--help` shows every setting with the file's values.
"""

import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any

import tyro
import yaml
from pydantic import ValidationError, create_model

from pipelines.config.pipeline import Config
from pipelines.config.task import KINDS, settings_class
from pipelines.errors import ConfigError

# pydantic speaks of Python's types.
_LIST, _MAPPING = "must be a list, such as [first, second]", "must be a mapping, such as {name: value}"
_WORDS = {
    "tuple_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "union_tag_not_found": "`encoder` is missing, such as {encoder: standardize}",
}


def home() -> Path:
    """The folder in which relative paths start: LOCKSTEP_HOME, else the current one."""
    return Path(os.environ.get("LOCKSTEP_HOME") or os.getcwd())


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
    path, overrides = arguments[0], _overrides(arguments[1:])
    sys.path.append(os.getcwd())  # where a task of one's own lies: of a script, Python only knows the folder of jobs
    config = load(path, overrides)
    if wants_help:
        tyro.cli(type(config), default=config, args=["--help"], prog=f"{program} {path}", config=(tyro.conf.FlagConversionOff,))
    return with_absolute_paths(config, home())


def load(path: str | Path, overrides: dict[str, Any] | None = None) -> Config:
    """The pipeline in a YAML file, with overrides by dotted key. Raises ConfigError with one line per fault."""
    values = _read(path)
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
    model = create_model("Config", __base__=Config, __doc__=Config.__doc__, task=(kind, ...))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_line(fault, model, values, origin, flags) for fault in error.errors())) from error


def with_absolute_paths(config: Config, folder: Path) -> Config:
    """The config with every relative path made absolute: a job's working directory may be an uploaded copy."""

    def absolute(path: str) -> str:
        return path if "://" in path or not path else str(folder / path)

    def table_paths(path: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return absolute(path) if isinstance(path, str) else tuple(map(absolute, path))

    tables = {name: table.model_copy(update={"path": table_paths(table.path)}) for name, table in config.source.tables.items()}
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


class _EachKeyOnce(yaml.SafeLoader):
    """Of a key that is given twice, YAML's own loader takes the last and does not say so."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)}: given twice; leave one", node.start_mark)
        return super().construct_mapping(node, deep)


def _read(path: str | Path) -> dict[str, Any]:
    try:
        values = yaml.load(_with_environment(Path(path).read_text()), _EachKeyOnce)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give the path of a pipeline's YAML file, such as conf/digits.yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a pipeline is a mapping of sections (got {type(values).__name__})")
    return values


def _with_environment(text: str) -> str:
    """`${NAME:-default}` replaced by the environment's value, as a shell does."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], text)


def _overrides(arguments: list[str]) -> dict[str, Any]:
    """`--a.b 1 --c=2` as {"a.b": 1, "c": 2}."""
    overrides, waiting = {}, list(arguments)
    while waiting:
        flag = waiting.pop(0)
        key, equals, text = flag.removeprefix("--").partition("=")
        if not flag.startswith("--") or not key:
            raise ConfigError(f"{flag}: an override is --section.setting VALUE")
        if not equals:
            if not waiting:
                raise ConfigError(f"--{key}: a value must follow, such as --{key} 2")
            text = waiting.pop(0)
        try:
            overrides[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--{key}: not a YAML value (got {text})") from error
    return overrides


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--{dotted}: {section} is a value, not a section (got {inner!r})")
        values = inner
    values[last] = value


def _line(fault: Any, model: type[Config], values: dict[str, Any], origin: str, flags: frozenset[str]) -> str:
    """One pydantic error as `file: dotted.key: message (got value)`."""
    keys = _keys(fault["loc"], values, missing=fault["type"] == "missing")
    dotted = ".".join(keys)
    where = f"--{dotted}" if dotted in flags else f"{origin}: {dotted}" if dotted else origin
    message = _WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    if fault["type"] == "extra_forbidden":
        known = _fields(model, keys[:-1])
        near = difflib.get_close_matches(keys[-1], known, n=1)
        message = "no such setting"
        if known:
            message += f"; {near[0]} is near" if near else f"; there are {', '.join(known)}"
    got = fault["input"]
    return f"{where}: {message}" + ("" if isinstance(got, dict | list) or fault["type"] == "missing" else f" (got {got})")


def _keys(location: tuple[str | int, ...], values: Any, missing: bool) -> list[str]:
    """pydantic's location without the names it adds for the members of a union."""
    keys = []
    for position, key in enumerate(location):
        if isinstance(values, dict) and (key in values or (missing and position == len(location) - 1)):
            keys.append(str(key))
            values = values.get(key)
        elif isinstance(values, list) and isinstance(key, int):
            keys.append(str(key))
            values = values[key] if key < len(values) else None
    return keys


def _fields(model: Any, keys: list[str]) -> list[str]:
    """Names of the settings of the section that `keys` lead to; none where the way leads through a mapping."""
    for key in keys:
        field = getattr(model, "model_fields", {}).get(key)
        model = field.annotation if field else None
    return list(getattr(model, "model_fields", {}))
