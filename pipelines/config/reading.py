"""Reads YAML strictly: a key may occur once, and an error is one line with its position."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import ConfigError


class _Strict(yaml.SafeLoader):
    """Unlike SafeLoader, rejects duplicate keys and reports invalid values as YAML errors with their position."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if repeated := sorted(key for key, times in Counter(keys).items() if times > 1):
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(repeated)}: duplicate key; remove one", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            fault = f"{str(node.value)[:40]!r} is not a valid {kind}: {error}; correct it, or quote it to make it text"
            raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark) from error


def from_yaml(text: str) -> Any:
    """Parses one document. Raises YAMLError, which `describe_yaml_error` turns into one line."""
    try:
        return yaml.load(text, _Strict)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply; the YAML of a pipeline has about six levels") from error


def read_yaml_file(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if the file cannot be read or is not a mapping."""
    try:
        values = from_yaml(_expand_environment(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"{str(path) or repr(path)}: {error.strerror}; name the YAML file of a pipeline, such as conf/digits.yaml"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {describe_yaml_error(error)}") from error
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), "a single value")
        raise ConfigError(f"{path}: a pipeline is a mapping of sections, such as name, source and dataset (got {kind})")
    return values


def describe_yaml_error(error: yaml.YAMLError) -> str:
    """The problem and its position in one line, without the surrounding text, which may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return " ".join(problem.split()) + where


def _expand_environment(text: str) -> str:
    """Replaces `${NAME:-default}` by the environment variable or its default, as a shell does."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], text)
