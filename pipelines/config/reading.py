"""Reads YAML strictly: a key may occur once, and an error is one line with its position."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import ConfigError

MOST_LEVELS = 50
"""Lists and mappings within one another. The deepest setting of a pipeline is at about the sixth level."""
MOST_VALUES = 1_000_000
"""Keys and values of a document, those of an alias counted at each of its places."""


class _Strict(yaml.SafeLoader):
    """Unlike SafeLoader, limits depth and size, rejects duplicate keys and reports invalid values as YAML errors with their position."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._levels_around = 0
        self._extents: dict[yaml.Node, tuple[int, int]] = {}
        """Per node, the levels and the values in it."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._levels_around += 1
        self._check_extent(self._levels_around, 0)
        node = super().compose_node(parent, index)
        self._levels_around -= 1
        if node is not None and node not in self._extents:
            extents = [self._extents.get(child, (0, 0)) for child in _children(node)]  # a node within itself has none yet
            levels, values = 1 + max((levels for levels, _ in extents), default=0), 1 + sum(values for _, values in extents)
            self._check_extent(levels, values)
            self._extents[node] = levels, values
        return node

    def _check_extent(self, levels: int, values: int) -> None:
        if levels > MOST_LEVELS:
            raise yaml.YAMLError(f"nested too deeply: more than {MOST_LEVELS} levels; the YAML of a pipeline has about six")
        if values > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES:,} values, those of aliases counted at each place; use fewer aliases")

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


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def from_yaml(text: str) -> Any:
    """Parses one document. Raises YAMLError, which `describe_yaml_error` turns into one line."""
    return yaml.load(text, _Strict)


def read_yaml_file(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError if the file cannot be read or is not a mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        # As a shell does, ${NAME:-default} becomes the variable or its default.
        values = from_yaml(re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], text))
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
