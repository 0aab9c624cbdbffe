"""A draft as the text of a YAML file."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pipelines.init.draft import Draft, KeyPath

LINE_CHARACTERS = 140
BLOCKS = ({"source"}, {"source", "tables"}, {"source", "expect"}, {"dataset"}, {"dataset", "features"})
"""Sections with a line for each of their settings, however short they are."""


def yaml_text(draft: Draft) -> str:
    """The file: the introduction, then each section. Equal drafts give equal texts."""
    introduction = [f"# {line}".rstrip() for line in draft.introduction]
    body = [line for key, value in draft.sections.items() for line in _setting((key,), value, draft.comments)]
    return "\n".join([*introduction, *body]) + "\n"


def _setting(path: KeyPath, value: Any, comments: Mapping[KeyPath, str]) -> Iterator[str]:
    """The lines of a setting, with its comment."""
    indent = "  " * (len(path) - 1)
    key = f"{indent}{_inline(path[-1])}:"
    comment = comments.get(path, "")
    lines = [] if _is_block(path, value, comments) else _short_lines(key, value)
    with_comment = f"{lines[0]}  # {comment}" if len(lines) == 1 else ""
    if with_comment and comment and "\n" not in comment and len(with_comment) <= LINE_CHARACTERS:
        yield with_comment
        return
    yield from (f"{indent}# {line}".rstrip() for line in comment.splitlines())
    if lines:
        yield from lines
    else:
        yield key
        for name, inner in value.items():
            yield from _setting((*path, str(name)), inner, comments)


def _is_block(path: KeyPath, value: Any, comments: Mapping[KeyPath, str]) -> bool:
    """Whether each entry of a value has a line of its own."""
    if not isinstance(value, Mapping) or not value:
        return False
    has_comment = any(len(other) > len(path) and other[: len(path)] == path for other in comments)
    line = f"{'  ' * (len(path) - 1)}{path[-1]}: {_inline(value)}"
    return has_comment or set(path) in BLOCKS or len(line) > LINE_CHARACTERS or "\\n" in line


def _short_lines(key: str, value: Any) -> list[str]:
    """A value without lines for its entries: in the line of its key, or as text of several lines below it."""
    indent = " " * (len(key) - len(key.lstrip()) + 2)
    if isinstance(value, str) and "\n" in value and value == value.strip():
        return [f"{key} |-", *(f"{indent}{line}".rstrip() for line in value.split("\n"))]
    line = f"{key} {_scalar(value) if isinstance(value, str) else _inline(value)}"
    if isinstance(value, str) and len(line) > LINE_CHARACTERS and (folded := _wrap_text(value, LINE_CHARACTERS - len(indent))):
        return [f"{key} >-", *(f"{indent}{line}" for line in folded)]
    return [line]


def _wrap_text(text: str, most_characters: int) -> list[str]:
    """The text in lines that YAML joins by one space again; empty if it has other white space, or begins or ends with some."""
    words = text.split(" ")
    if not all(words) or not text.isprintable():
        return []
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > most_characters:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def _scalar(text: str) -> str:
    """A text as YAML writes it at the end of a line."""
    return str(yaml.safe_dump(text, allow_unicode=True, width=float("inf"))).removesuffix("...\n").removesuffix("\n")


def _inline(value: Any) -> str:
    """A value as YAML writes it within a line."""
    text = yaml.safe_dump([_plain(value)], default_flow_style=True, allow_unicode=True, sort_keys=False, width=float("inf"))
    return str(text).strip()[1:-1]


def _plain(value: Any) -> Any:
    """Mappings and sequences as the dict and list that YAML knows."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
