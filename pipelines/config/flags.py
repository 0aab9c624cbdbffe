"""Parses flags, `--section.setting VALUE`. A value is YAML, or several words, as `--help` prints lists.

--task.hidden 256 128        --task.hidden [256, 128]        --task.hidden=[]
"""

from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel

from pipelines.config.messages.validation_errors import show_value
from pipelines.config.reading import describe_yaml_error, from_yaml
from pipelines.errors import ConfigError


def parse_flags(arguments: list[str], model: type[BaseModel]) -> dict[str, Any]:
    """Values by dotted key. One word is parsed as YAML, several words become a list, none an empty tuple. If the setting takes only
    text, the word is not parsed, since YAML would join the lines of a query.

    Raises ConfigError for a word that belongs to no flag or is not YAML, and for a flag that stands twice.
    """
    words: dict[str, list[str]] = {}
    key = ""
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            key, equals, text = argument.removeprefix("--").partition("=")
            if not key:
                raise ConfigError(f"{argument}: not a flag; write --section.setting VALUE")
            if key in words:
                raise ConfigError(f"--{key}: is given twice; give it once, with all its values")
            words[key] = [text] if equals else []
        elif key:
            words[key].append(argument)
        else:
            raise ConfigError(f"{argument}: not a flag; write --section.setting VALUE")
    return {key: _parse_words(key, texts, model) for key, texts in words.items()}


def convert_flag_values(values: dict[str, Any], flags: frozenset[str], model: type[BaseModel]) -> None:
    """Convert the values of flags to the type of their settings: to a list if the setting takes only lists, to a mapping from pairs
    if it takes only mappings.

    Raises ConfigError for a flag without a value if its setting takes neither.
    """
    for flag in flags:
        *sections, last = flag.split(".")
        holder = values
        for section in sections:
            holder = holder[section]
        kinds = _kinds(model, [*sections, last])
        value = holder[last]
        if value == () and kinds not in ({tuple}, {dict}):
            raise ConfigError(f"--{flag}: the value is missing; write it after the flag, such as --{flag} 2")
        if kinds == {tuple}:
            holder[last] = list(value) if isinstance(value, list | tuple) else [value]
        elif kinds == {dict} and isinstance(value, list | tuple) and len(value) % 2 == 0:
            holder[last] = dict(zip(value[::2], value[1::2], strict=True))


def _parse_words(key: str, texts: list[str], model: type[BaseModel]) -> Any:
    """The value of a flag. If the setting takes only text, or is a section for which a text is short, one word stands as it is."""
    kinds = _kinds(model, key.split("."))
    is_short = any(getattr(kind, "short_for", "") for kind in kinds)
    if len(texts) == 1 and (kinds == {str} or (is_short and not texts[0].startswith("{"))):
        return texts[0]
    values = []
    for text in texts:
        try:
            values.append(None if text == "None" else from_yaml(text))
        except yaml.YAMLError as error:
            raise ConfigError(
                f"--{key}: not a YAML value: {describe_yaml_error(error)}; quote the text (got {show_value(text)})"
            ) from error
    return () if not values else values[0] if len(values) == 1 else values


def _kinds(model: Any, keys: list[str]) -> set[Any]:
    """The types that the setting accepts, with `tuple` and `dict` for generic ones; empty if no section declares the setting."""
    for key in keys:
        if get_origin(model) is dict:
            model = get_args(model)[1]
            continue
        fields = (pair for section in _sections(model) for pair in section.model_fields.items())
        field = next((field for name, field in fields if key in (name, field.alias)), None)
        if field is None:
            return set()
        model = field.annotation
    return _types(model)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a setting accepts: several where another setting chooses between them."""
    if isinstance(annotation, type):
        if not issubclass(annotation, BaseModel):
            return []
        kinds = vars(annotation).get("named_classes")
        return [annotation, *kinds.by_name.values()] if kinds else [annotation]
    return [section for inner in get_args(annotation) for section in _sections(inner)]


def _types(annotation: Any) -> set[Any]:
    origin = get_origin(annotation)
    if origin in (tuple, dict):
        return {origin}
    if origin is Annotated:
        return _types(annotation.__origin__)
    inner = get_args(annotation)
    return set().union(*map(_types, inner)) if inner and origin is not None else {annotation}
