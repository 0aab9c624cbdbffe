"""Text files have one encoding, whatever the locale: a page written as Latin-1 is read as nonsense elsewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [file for room in ("pipelines", "jobs", "cluster") for file in sorted((ROOT / room).rglob("*.py"))]
BINARY_OPENERS = {"os", "tarfile", "wave", "Image", "archive", "files", "_files"}
"""Modules and objects whose `open` opens no text."""


def text_calls_without_encoding(source: str) -> Iterator[int]:
    """Lines of calls that read or write text in the encoding of the locale."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and not any(keyword.arg == "encoding" for keyword in node.keywords) and _is_text(node):
            yield node.lineno


def _is_text(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="read_text", value=ast.Name(id="package")):  # of an installed distribution, which is UTF-8
            return False
        case ast.Attribute(attr="read_text" | "write_text"):
            return True
        case ast.Name(id="open"):
            return not _is_binary(call.args[1:])
        case ast.Attribute(attr="open", value=ast.Call(func=ast.Attribute(attr="new_input"))):  # of pyiceberg, which gives bytes
            return False
        case ast.Attribute(attr="open", value=ast.Name(id=owner) | ast.Attribute(attr=owner)):
            return owner not in BINARY_OPENERS and not _is_binary(call.args)
        case ast.Attribute(attr="open"):
            return not _is_binary(call.args)
    return False


def _is_binary(arguments: list[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and "b" in str(arguments[0].value)


@pytest.mark.parametrize(
    "source", ["path.read_text()", "Path(x).write_text(y)", "open(x)", "open(x, 'w')", "path.open('a')", "Path(x).open()"]
)
def test_the_rule_notices(source: str) -> None:
    assert list(text_calls_without_encoding(source)) == [1]


@pytest.mark.parametrize(
    "source", ["path.read_text(encoding='utf-8')", "open(x, 'rb')", "path.open('wb')", "os.open(x, y)", "path.read_bytes()"]
)
def test_the_rule_lets_pass(source: str) -> None:
    assert not list(text_calls_without_encoding(source))


def test_text_files_name_their_encoding() -> None:
    calls = [
        f"{file.relative_to(ROOT)}:{line}" for file in PRODUCT for line in text_calls_without_encoding(file.read_text(encoding="utf-8"))
    ]
    assert not calls
