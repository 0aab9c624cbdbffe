"""Writes `--help` of a pipeline: the usual settings in a line each, and the sections; and says in words what a setting takes."""

import shutil
from collections.abc import Iterator, Mapping
from textwrap import fill, shorten
from typing import Any

from pydantic import BaseModel

from pipelines.config.section import Section

ALL = "all"
_ENCODER_MAPPINGS = ("features", "target", "passthrough")
"""Mappings of `dataset` whose values are encoders."""
USUAL = (
    "name", "dataset.path", "train.workers", "train.use_gpu", "train.epochs", "train.max_steps", "train.global_batch", "train.optimizer",
    "train.lr", "train.strategy.kind", "train.shards", "train.seed", "train.storage", "tracking.uri", "tracking.experiment",
    "tracking.run_name",
)  # fmt: skip
"""What people change from run to run."""
_WIDEST = 110
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def setting_schemas(section: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each setting, by name."""
    return section.model_json_schema(by_alias=True).get("properties", {})


def value_words(values: dict[str, Any]) -> str:
    """A JSON schema in words: `whole number > 0`, `a \\| b`."""
    if "$ref" in values or "allOf" in values:
        return "a section"
    if "enum" in values or "const" in values:
        return table_cell(" | ".join(f"`{value}`" for value in values.get("enum", [values.get("const")])))
    if options := values.get("anyOf") or values.get("oneOf"):
        return " or ".join(dict.fromkeys(value_words(option) for option in options))
    if values.get("type") == "array":
        items = [value_words(item) for item in values.get("prefixItems", [])] or [value_words(values.get("items", {}))]
        return f"list of {', '.join(dict.fromkeys(items))}"
    if values.get("type") == "object":
        inner = values.get("additionalProperties")
        return f"mapping of names to {value_words(inner)}" if isinstance(inner, dict) else "mapping"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "none"}
    bounds = [f"{sign} {values[key]:,}" for key, sign in _BOUNDS.items() if key in values]
    return " ".join([words.get(values.get("type", ""), "any"), ", ".join(bounds)]).strip()


def one_line(text: str) -> str:
    return " ".join(text.split())


def table_cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def short_help(config: BaseModel, usage: str) -> str:
    """The usual settings with their values, and the sections, in fewer than 40 lines."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = ["The usual settings, with their values:"]
    for key in USUAL:
        *path, name = key.split(".")
        section = config
        for part in path:
            section = getattr(section, part)
        lines.append(_line(f"  --{key} {_text(getattr(section, name))}", _explanation(type(section), name), width))
    lines += ["", "Sections:"]
    sections = (name for name in type(config).model_fields if isinstance(getattr(config, name), Section))
    lines += [_line(f"  {name}", _explanation(type(config), name), width, 12) for name in sections]
    return "\n".join([*lines, "", f"Every setting: {usage} {ALL}", f"Those of a section: {usage} train"])


def help_text(config: BaseModel, topic: str = ALL) -> str:
    """The settings of a config and of its sections, each section with a title; of one section if `topic` is its name."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    if topic != ALL:
        return "\n".join(_lines(getattr(config, topic), f"{topic}.", _explanation(type(config), topic), width))
    return "\n".join(_lines(config, "", one_line(type(config).__doc__ or ""), width))


def is_topic(word: str, config: type[BaseModel]) -> bool:
    """Whether `--help WORD` asks for all settings or for those of a section."""
    return word == ALL or (word in config.model_fields and word != "name")


def _line(head: str, explanation: str, width: int, column: int = 40) -> str:
    """A setting and the first of its explanation, in one line."""
    start = f"{head:{column}}  " if len(head) <= column else f"{head}  "
    return start + shorten(explanation, max(width - len(start), 10), placeholder=" …")


def _lines(section: BaseModel, prefix: str, title: str, width: int) -> Iterator[str]:
    yield fill(f"{prefix.removesuffix('.')}: {title}" if prefix else title, width)
    schemas = setting_schemas(type(section))
    inner_sections: list[tuple[str, BaseModel, str]] = []
    for name, field in type(section).model_fields.items():
        value, key = getattr(section, name), f"{prefix}{field.alias or name}"
        explanation = _explanation(type(section), name)
        if prefix == "dataset." and name in _ENCODER_MAPPINGS:
            continue
        if isinstance(value, Section):
            inner_sections.append((key, value, explanation))
        elif isinstance(value, Mapping) and any(isinstance(inner, Section) for inner in value.values()):
            inner_sections += [(f"{key}.{inner}", entry, one_line(entry.__doc__ or "")) for inner, entry in value.items()]
        else:
            words = value_words(schemas[field.alias or name]).replace("`", "").replace("\\|", "|")
            yield fill(f"--{key} {words}", width, initial_indent="  ", subsequent_indent="        ", break_on_hyphens=False)
            yield fill(f"{explanation} (default: {_text(value)})", width, initial_indent="      ", subsequent_indent="      ")
    for key, inner, explanation in inner_sections:
        yield ""
        yield from _lines(inner, f"{key}.", explanation, width)


def _explanation(section: type[BaseModel], name: str) -> str:
    """The explanation of a setting, which a subclass inherits where it only narrows the values."""
    fields = (base.model_fields[name] for base in section.__mro__ if issubclass(base, BaseModel) and name in base.model_fields)
    return next((field.description for field in fields if field.description), "")


def _text(value: Any) -> str:
    """A value as a flag takes it."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value) if value != "" else "''"
