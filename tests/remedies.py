"""Finds the messages in the sources that offer a remedy."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERBS = (
    "add|cast|change|check|choose|correct|declare|encode|free|get|give|install|keep|leave|lower|make|mend|move|name|open|order|pad|pass|"
    "point|promote|put|quote|raise|record|reduce|register|remove|rename|restore|save|see|select|send|set|shorten|split|start|stop|take|train|"
    "try|unset|upgrade|use|verify|wait|write"
)
OFFER = re.compile(
    rf"(?:^|[;:,] (?:\{{\}})?|, or |; or )(?:(?:{VERBS}) (?!of\b|is\b|\{{\}} (?:of|is)\b)|run (?!of\b|is\b|\{{\}}|%s))\w*"
    r"|; --\w|such as --\w|; jobs/\w",
    re.ASCII,
)
"""What follows a rule or a value: a verb in the imperative, a flag or a command. `run {}` is a run of MLflow with its ID."""
NO_MESSAGE = re.compile(r"usage:|--[^;]*$|[\w{}]+ (string|int|bigint|long)(, [\w{}]+ (string|int|bigint|long))*$", re.ASCII)
"""Usages, flags, and columns with their types, whose names may be verbs."""
SHORTEST = 25
_KINDS = ("debug", "info")


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every text in a module that offers a remedy, with `{}` in place of values; documentation is left out."""
    tree = ast.parse(source)
    left_out = {id(node) for node in _left_out(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in left_out:
            text = _text(node)
            if len(text) > SHORTEST and OFFER.search(text) and "\n\n" not in text and not NO_MESSAGE.match(text):
                yield node.lineno, text


@cache
def message_places() -> dict[str, list[str]]:
    """The places of each message in `pipelines`."""
    places: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("pipelines/**/*.py")):
        for line, text in messages(path.read_text()):
            places.setdefault(text, []).append(f"{path.relative_to(ROOT)}:{line}")
    return places


def pattern(message: str) -> re.Pattern[str]:
    """What a message looks like with its values."""
    parts = [part.replace("{{", "{").replace("}}", "}").replace("%%", "%") for part in re.split(r"\{\}|%[sd]|%\.\d+[fg]", message)]
    return re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def _left_out(tree: ast.AST) -> Iterator[ast.AST]:
    """Documentation, the parts of formatted texts, what a log says of ordinary events, and remedies of conditions, all of which
    `test_effects` tries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from (inner for part in node.values for inner in ast.walk(part))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "OnlyWith":
            yield from (inner for keyword in node.keywords for inner in ast.walk(keyword))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KINDS:
            yield from (inner for argument in node.args for inner in ast.walk(argument))
