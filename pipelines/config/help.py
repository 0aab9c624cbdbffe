"""Writes `--help` of a pipeline: every setting as a flag, with the values that it takes, its explanation, and its present value.

Columns of a dataset are left to the YAML file, which has many of them.
"""

import shutil
from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

from pydantic import BaseModel

from pipelines.config.plugin_fields import ENCODER_MAPPINGS
from pipelines.config.reference import setting_schemas, value_words
from pipelines.config.section import Section

_WIDEST = 110


def help_text(config: BaseModel) -> str:
    """The settings of a config and of its sections, each section with a title."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return "\n".join(_lines(config, "", " ".join((type(config).__doc__ or "").split()), width))


def _lines(section: BaseModel, prefix: str, title: str, width: int) -> Iterator[str]:
    yield fill(f"{prefix.removesuffix('.')}: {title}" if prefix else title, width)
    schemas = setting_schemas(type(section))
    inner_sections: list[tuple[str, BaseModel, str]] = []
    for name, field in type(section).model_fields.items():
        value, key = getattr(section, name), f"{prefix}{field.alias or name}"
        explanation = _explanation(type(section), name)
        if prefix == "dataset." and name in ENCODER_MAPPINGS:
            continue
        if isinstance(value, Section):
            inner_sections.append((key, value, explanation))
        elif isinstance(value, Mapping) and any(isinstance(inner, Section) for inner in value.values()):
            inner_sections += [(f"{key}.{inner}", entry, " ".join((entry.__doc__ or "").split())) for inner, entry in value.items()]
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
