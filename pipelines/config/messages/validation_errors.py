"""Words the errors of pydantic, one line for each setting: `file: dotted.key: rule; remedy (got value)`."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pipelines.config.messages.words import suggestion
from pipelines.config.secrets import has_login, is_secret

_LIST, _MAPPING = "must be a list, such as [first, second]", "must be a mapping, such as {{name: value}}"
_NUMBER, _WHOLE, _SWITCH = "must be a number", "must be a whole number", "must be true or false"
_WORDS = {
    "tuple_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "missing": "is missing",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "string_type": "must be text",
    "string_unicode": "must be text without lone surrogates",
    "string_too_short": "must not be empty",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
    "invalid_key": "a name must be text; quote it",
    "recursion_loop": "must not contain itself",
}
"""By error type of pydantic; braces refer to the context that pydantic gives with the error."""
MOST_NAMES = 40
"""Of a section, in a line of a message."""
SHOWN_CHARACTERS = 80
"""Of a value, in a line of a message."""


def show_value(value: Any) -> str:
    """A value as YAML writes it, shortened to fit into one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    text = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
    return text if text and text.isprintable() else repr(text)


def error_lines(error: ValidationError, model: type[BaseModel], values: Any, origin: str, flags: frozenset[str]) -> list[str]:
    """One line for each setting with an error. Errors of the members of a union are joined in one line."""
    by_place: dict[tuple[str, ...], list[Any]] = {}
    for fault in error.errors():
        by_place.setdefault(tuple(_keys(fault["loc"], values, missing=fault["type"] == "missing")), []).append(fault)
    # If an element of a list is wrong, only that is reported, and not that the list itself is no text.
    outer = {place[:depth] for place in by_place for depth in range(1, len(place))}
    lines = [_line(place, faults, model, values, origin, flags) for place, faults in by_place.items() if place not in outer]
    # A name may have what a terminal takes for the end of a line, or for an instruction.
    return ["".join(character if character.isprintable() else repr(character)[1:-1] for character in line) for line in lines]


def _line(place: tuple[str, ...], faults: list[Any], model: type[BaseModel], values: Any, origin: str, flags: frozenset[str]) -> str:
    key = ".".join(place)
    shown_key = ".".join(repr(show_value(part)) if "." in part else show_value(part) for part in place)
    where = f"--{shown_key}" if key in flags else f"{origin}: {shown_key}" if place else origin
    if isinstance(faults[0]["input"], list | tuple):
        faults = [fault for fault in faults if fault["type"] != "string_type"] or faults
    rules = list(dict.fromkeys(_rule(fault, place, model, values) for fault in faults))
    rule = ", or ".join([rules[0], *[rule.removeprefix("must be ") for rule in rules[1:]]])
    allowed = [word for fault in faults if fault["type"] == "literal_error" for word in _words_in_quotes(fault["ctx"]["expected"])]
    if hint := suggestion(str(faults[0]["input"]), allowed):
        rule += f"; {hint}"
    input = faults[0]["input"]
    is_named = isinstance(input, str) and re.match(rf"(no \w+ )?'{re.escape(input)}'", rule) is not None
    is_hidden = isinstance(input, dict | list | set) or faults[0]["type"] == "missing" or is_secret(key) or has_login(str(input))
    return f"{where}: {rule}" + ("" if is_hidden or is_named else f" (got {show_value(input)})")


def _rule(fault: Any, place: tuple[str, ...], model: type[BaseModel], values: Any) -> str:
    context = fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            known = _fields(model, place[:-1], values)
            all_names = f"choose one of {', '.join(known)}" if len(known) <= MOST_NAMES else "--help all lists all names"
            return f"no such setting; {suggestion(place[-1], known, all_names)}" if known else "no such setting"
        case "literal_error":
            allowed = _words_in_quotes(context["expected"])
            if allowed == [""]:
                return "must be empty"
            return f"must be {'one of ' if len(allowed) > 1 else ''}{', '.join(allowed)}"
        case "string_type" if fault["loc"][-1] == "[key]":
            return _WORDS["invalid_key"]
        case "too_long" if not context["max_length"]:
            return "must be empty"
        case "too_short" if not context["actual_length"]:
            return "must not be empty"
        case kind if kind in _WORDS:
            return _WORDS[kind].format(**{name: f"{rule:,.12g}" if isinstance(rule, float) else rule for name, rule in context.items()})
        case _:
            return " ".join(fault["msg"].removeprefix("Value error, ").split())


def _words_in_quotes(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _keys(location: tuple[str | int, ...], values: Any, missing: bool) -> list[str]:
    """The location of an error without the names that pydantic adds for members of a union."""
    keys = []
    for position, key in enumerate(location):
        if missing and position == len(location) - 1:
            keys.append(str(key))
        elif isinstance(values, dict) and key in values:
            keys.append(str(key))
            values = values[key]
        elif isinstance(values, list) and isinstance(key, int):
            keys.append(str(key))
            values = values[key] if key < len(values) else None
    return keys


def _fields(model: Any, keys: Iterable[str], values: Any) -> list[str]:
    """Names of the settings of the section at `keys` of the values."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
        if get_origin(model) is dict:
            model = get_args(model)[1]
        else:
            field = getattr(model, "model_fields", {}).get(key)
            model = field.annotation if field else None
        model = _chosen_class(model, values)
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _chosen_class(model: Any, values: Any) -> Any:
    """The class of a section that a name in its values chooses; of others, the class itself."""
    while get_origin(model) is Annotated:
        model = get_args(model)[0]
    kinds: Any = vars(model).get("named_classes") if isinstance(model, type) else None
    section = kinds.expand(values) if kinds else None
    try:
        return kinds.section_class(section) if isinstance(section, dict) else model
    except ValueError:
        return model
