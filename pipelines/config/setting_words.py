"""Words for what a setting takes: for the page of all settings, and for `--help`."""

from typing import Any

from pydantic import BaseModel

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
