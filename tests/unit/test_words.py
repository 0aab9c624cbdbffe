"""Names and docstrings in the words that a newcomer searches for. CONTRIBUTING.md has the rules; this counts what breaks them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT, TESTS = ("pipelines", "cluster", "jobs"), ("tests", "benchmarks")
BUDGETS = {"participles": (6, 17), "empty values": (20, 6), "pronouns": (0, None)}
"""The most that may stand in the product, and in tests and benchmarks; None where the rule does not hold."""
NAMES_IN_SEVERAL_ROOMS = 17

PREPOSITION = re.compile("by|for|in|of|on|with")
IRREGULAR = re.compile("begun|bound|built|chosen|drawn|found|given|held|kept|known|left|made|said|sent|shown|spent|taken|told|written")
VERB_LIKE_PARTICIPLE = re.compile("embed|exceed|feed|need|proceed|read|seed|shed|spread|succeed|thread")
EMPTY = re.compile(
    "again|apart|asked|beside|came|come|done|each|found|given|gone|here|held|info|kept|known|left|made|misc|one|others|own|rest|said|"
    "seen|shown|some|stuff|taken|theirs|there|things?|told|two|wanted|went|what|which|who|whole"
)
PRONOUN = re.compile(r"(It|Its|They|Those|What|That of|The same)\b")
NOUNS = {"property", "cached_property", "fixture", "contextmanager"}
"""Decorators of functions that are read as nouns."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_participle(name: str) -> bool:
    """Whether a function's name tells what has been done, or of what, instead of what it does or returns."""
    words = name.strip("_").split("_")
    is_regular = words[0].endswith("ed") and not VERB_LIKE_PARTICIPLE.fullmatch(words[0]) and len(words) <= 3
    is_irregular = len(words) == 1 and bool(IRREGULAR.fullmatch(words[0]))
    return is_regular or is_irregular or words[-1] == "of" or bool(PREPOSITION.fullmatch(words[0]))


def decorators(node: Function) -> set[str]:
    targets = [getattr(decorator, "func", decorator) for decorator in node.decorator_list]
    return {getattr(target, "id", getattr(target, "attr", "")) for target in targets}


def participles(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    functions = [node for node in nodes if isinstance(node, Function) and not node.name.startswith(("test_", "__"))]
    return ((node.lineno, node.name) for node in functions if is_participle(node.name) and not decorators(node) & NOUNS)


def empty_values(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                if EMPTY.fullmatch(name.strip("_")):
                    yield node.lineno, name


def pronouns(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, Function | ast.ClassDef | ast.Module) and PRONOUN.match(text := ast.get_docstring(node) or ""):
            yield getattr(node, "lineno", 1), text.splitlines()[0]


RULES = {"participles": participles, "empty values": empty_values, "pronouns": pronouns}


class Texts(NamedTuple):
    """What the rules find in all files."""

    places: dict[tuple[str, int], list[str]]
    """Places by rule, and by 0 for the product and 1 for tests and benchmarks."""
    rooms: dict[str, set[str]]
    """The rooms of `pipelines` that define a public name."""


@pytest.fixture(scope="module")
def texts() -> Texts:
    """Each file is parsed once, and no tree is kept: those of all files would slow down every test that comes after."""
    places, rooms = defaultdict(list), defaultdict(set)
    for number, folders in enumerate((PRODUCT, TESTS)):
        for file in [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]:
            tree, path = ast.parse(file.read_text()), file.relative_to(ROOT)
            nodes = list(ast.walk(tree))
            for rule, search in RULES.items():
                places[rule, number] += [f"{path}:{line}: {text}" for line, text in search(nodes)]
            if path.parts[0] == "pipelines":
                for name in public_names(tree):
                    rooms[name].add("/".join(path.parts[:2]))
    return Texts(places, rooms)


def public_names(tree: ast.Module) -> set[str]:
    """Functions and classes of a module that others may import."""
    names = {node.name for node in tree.body if isinstance(node, Function | ast.ClassDef)}
    return {name for name in names if not name.startswith("_") and name != "main"}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("number", [0, 1], ids=["product", "tests"])
def test_names_and_docstrings_are_plain(texts: Texts, rule: str, number: int) -> None:
    budget, places = BUDGETS[rule][number], texts.places[rule, number]
    assert budget is None or len(places) <= budget, f"{len(places)} places, at most {budget} may be:\n" + "\n".join(places)


def test_a_public_name_stands_once(texts: Texts) -> None:
    several = [f"{name}: {', '.join(sorted(rooms))}" for name, rooms in sorted(texts.rooms.items()) if len(rooms) > 1]
    assert len(several) <= NAMES_IN_SEVERAL_ROOMS, f"{len(several)} names stand in several rooms:\n" + "\n".join(several)


@pytest.mark.parametrize(("name", "is_odd"), [("described", True), ("_kept", True), ("rows_of", True), ("of_rows", True), ("embed", False)])
def test_participles_are_recognized(name: str, is_odd: bool) -> None:
    assert is_participle(name) is is_odd
