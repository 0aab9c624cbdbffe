"""Writes the winner of a search as a YAML file: that of the search with other values in `task`, `train` and `dataset`, and without `tune`.
Sections that flags have changed are written as they were searched.

Comments, and what the file takes from the environment, stay as they are. The first line carries a checksum of the rest, by which a file
that nobody has edited since may be written anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import yaml

from pipelines.config import Config, home
from pipelines.config.load import load, with_absolute_paths
from pipelines.config.train.base import PLACEMENT
from pipelines.errors import ConfigError
from pipelines.runtime import atomic
from pipelines.tuning.search import Params

_MARK = "# Written by lockstep tune, checksum "
_SECTIONS = ("source", "dataset", "task", "train")
_WIDTH = 140
_CHECKSUM = 16


def winner_path(origin: str, output: str) -> Path:
    """The file to write: `output`, or by default NAME_tuned.yaml beside NAME.yaml. Raises ConfigError if there is one that a search has not
    written, or that was edited since."""
    path = Path(output) if output else Path(origin).with_name(f"{Path(origin).stem}_tuned.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--output is {path}, and a config is a file that ends in .yaml; rename it")
    if path.exists() and not _is_untouched(path):
        raise ConfigError(f"{path} exists, and is no file that a search has written and nobody has edited; choose another by --output")
    return path


@dataclass(frozen=True)
class NewSettings:
    """The settings of a model that take the place of those of a file."""

    params: Params
    """Values by the dotted names of settings, or all of a section by its name."""
    placement_names: frozenset[str] = frozenset()
    """Settings of the file's section `train` that stay where all others of it are replaced."""


def find_changes(origin: str, config: Config) -> Params:
    """The sections of a config that differ from those of its file, by name, as plain values: flags or a caller have changed them. Where and
    how a training runs is no difference. Raises ConfigError for a file that is no config."""
    searched, written = _model_sections(config), _model_sections(load(origin))
    return {name: section for name, section in searched.items() if section != written[name]}


def _model_sections(config: Config) -> dict[str, Any]:
    values = with_absolute_paths(config, home()).model_dump(mode="json", by_alias=True, exclude_unset=True)
    sections = {name: values.get(name) for name in _SECTIONS}
    return {**sections, "train": {name: value for name, value in (sections["train"] or {}).items() if name not in PLACEMENT}}


def write_winner(origin: str, path: Path, settings: NewSettings, remarks: list[str]) -> None:
    """Write the config in the file `origin` with these settings, under `remarks`. Raises OSError."""
    text = replace_settings(Path(origin).read_text(encoding="utf-8"), settings)
    content = "".join(f"# {remark}\n" for remark in remarks) + text
    atomic.write_file(path, f"{_MARK}{_checksum(content)}\n{content}".encode())


def replace_settings(text: str, settings: NewSettings) -> str:
    """The YAML of a config in which others stand in place of settings of _SECTIONS, and which has no `tune`."""
    text = _replace_features(text, settings.params)
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "a config that was read is a mapping"
    values = yaml.safe_load(text)
    sections = {section: _new_section(values.get(section), section, settings) for section in _SECTIONS}
    places = {key.value: (key.start_mark.index, value.end_mark.index) for key, value in root.value}
    blocks = {section: _dump({section: content}) for section, content in sections.items() if content != values.get(section)}
    for section in sorted({*blocks, "tune"} & places.keys(), key=lambda name: -places[name][0]):
        start, end = places[section]
        block = blocks.get(section, "")
        text = text[:start] + block + text[end:].removeprefix("\n")
    return text.rstrip("\n") + "\n" + "".join(block for section, block in blocks.items() if section not in places)


def _new_section(section: Any, name: str, settings: NewSettings) -> Any:
    if name in settings.params:
        present = section.items() if name == "train" and isinstance(section, Mapping) else ()
        placement = {key: value for key, value in present if key in settings.placement_names}
        section = {**placement, **settings.params[name]}
    return _apply_params(section, name, settings.params)


def _replace_features(text: str, params: Params) -> str:
    """The YAML with other encoders of features, where comments in `dataset` stay; as it is where anchors or merged keys are in the way."""
    values, root = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    if not any(name.startswith("dataset.") for name in params):
        return text
    new_values = {**values, "dataset": _apply_params(values["dataset"], "dataset", params)}
    encoders, new_encoders = values["dataset"]["features"], new_values["dataset"]["features"]
    nodes = _child_nodes(_child_nodes(_child_nodes(root).get("dataset")).get("features"))
    changed = [name for name in new_encoders if new_encoders[name] != encoders.get(name)]
    if not nodes.keys() >= {*changed}:
        return text
    edited = text
    for name in sorted(changed, key=lambda name: -nodes[name].start_mark.index):
        start, end = nodes[name].start_mark.index, _end_of_node(nodes[name])
        edited = edited[:start] + _dump_inline(new_encoders[name]) + edited[end:]
    try:
        return edited if yaml.safe_load(edited) == new_values else text
    except yaml.YAMLError:
        return text


def _apply_params(section: Any, name: str, params: Params) -> Any:
    """The plain values of a section, in which a name alone is short for its kind."""
    section_params = {key.removeprefix(f"{name}."): value for key, value in params.items() if key.startswith(f"{name}.")}
    if not section_params:
        return section
    content: dict[str, Any] = {"kind": section} if isinstance(section, str) else dict(section or {})
    for key, value in sorted(section_params.items(), key=lambda item: item[0].count(".")):  # a section before its settings
        *outer, last = key.split(".")
        inner = content
        for depth, part in enumerate(outer):
            subsection, tag = inner.get(part, {}), "encoder" if name == "dataset" and depth == 1 else "kind"
            inner[part] = {tag: subsection} if isinstance(subsection, str) else dict(subsection)
            inner = inner[part]
        inner[last] = value
    return content


def _dump(values: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(values), default_flow_style=None, sort_keys=False, allow_unicode=True, width=_WIDTH))


def _dump_inline(value: Any) -> str:
    return str(yaml.safe_dump([value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=inf)).strip()[1:-1]


def _child_nodes(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """The nodes of a mapping by key; none of anything else."""
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _end_of_node(node: yaml.Node) -> int:
    """Where the text of a value ends. Of a block, PyYAML says where the next key begins, after comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of_node(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _is_untouched(path: Path) -> bool:
    first_line, _, content = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    return first_line == f"{_MARK}{_checksum(content)}"


def _checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_CHECKSUM]
