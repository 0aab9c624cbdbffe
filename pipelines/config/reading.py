"""YAML, read strictly: each key once, and every fault a line with its place."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import ConfigError


class _Strict(yaml.SafeLoader):
    """YAML's own loader takes the last of a key that is given twice, and lets Python's errors of a value pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)}: given twice; leave one", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            told = f"{str(node.value)[:40]!r} is no {kind}, though it looks like one: {error}; correct it, or put it into quotes"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark) from error


def from_yaml(text: str) -> Any:
    """Raises YAMLError, of which `told` makes a line."""
    try:
        return yaml.load(text, _Strict)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply; a pipeline has about six levels") from error


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if there is none."""
    try:
        values = from_yaml(_with_environment(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{str(path) or repr(path)}: {error.strerror}; give a pipeline's YAML file, such as conf/digits.yaml") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {told(error)}") from error
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), "a single value")
        raise ConfigError(f"{path}: a pipeline is a mapping of sections, such as name, source and dataset (got {kind})")
    return values


def told(error: yaml.YAMLError) -> str:
    """What is wrong in a line, without the text around it, which may be secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return " ".join(problem.split()) + where


def _with_environment(text: str) -> str:
    """`${NAME:-default}` replaced by the environment's value, as a shell does."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], text)
