"""Names and docstrings in the words that a newcomer searches for. CONTRIBUTING.md has the rules; this counts what breaks them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def trees(folders: tuple[str, ...]) -> list[tuple[Path, ast.Module]]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths]


def is_participle(name: str) -> bool:
    """Whether a function's name tells what has been done, or of what, instead of what it does or returns."""
    words = name.strip("_").split("_")
    is_regular = words[0].endswith("ed") and not VERB_LIKE_PARTICIPLE.fullmatch(words[0]) and len(words) <= 3
    is_irregular = len(words) == 1 and bool(IRREGULAR.fullmatch(words[0]))
    return is_regular or is_irregular or words[-1] == "of" or bool(PREPOSITION.fullmatch(words[0]))


def decorators(node: Function) -> set[str]:
    targets = [getattr(decorator, "func", decorator) for decorator in node.decorator_list]
    return {getattr(target, "id", getattr(target, "attr", "")) for target in targets}


def participles(tree: ast.Module) -> Iterator[tuple[int, str]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, Function) and not node.name.startswith(("test_", "__"))]
    return ((node.lineno, node.name) for node in functions if is_participle(node.name) and not decorators(node) & NOUNS)


def empty_values(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                if EMPTY.fullmatch(name.strip("_")):
                    yield node.lineno, name


def pronouns(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module) and PRONOUN.match(text := ast.get_docstring(node) or ""):
            yield getattr(node, "lineno", 1), text.splitlines()[0]


RULES = {"participles": participles, "empty values": empty_values, "pronouns": pronouns}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("number", "folders"), list(enumerate((PRODUCT, TESTS))), ids=["product", "tests"])
def test_names_and_docstrings_are_plain(rule: str, number: int, folders: tuple[str, ...]) -> None:
    budget = BUDGETS[rule][number]
    places = [f"{path}:{line}: {text}" for path, tree in trees(folders) for line, text in RULES[rule](tree)]
    assert budget is None or len(places) <= budget, f"{len(places)} places, at most {budget} may be:\n" + "\n".join(places)


def test_a_public_name_stands_once() -> None:
    rooms = defaultdict(set)
    for path, tree in trees(("pipelines",)):
        for node in tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_") and node.name != "main":
                rooms[node.name].add("/".join(path.parts[:2]))
    several = [f"{name}: {', '.join(sorted(places))}" for name, places in sorted(rooms.items()) if len(places) > 1]
    assert len(several) <= NAMES_IN_SEVERAL_ROOMS, f"{len(several)} names stand in several rooms:\n" + "\n".join(several)


@pytest.mark.parametrize(("name", "is_odd"), [("described", True), ("_kept", True), ("rows_of", True), ("of_rows", True), ("embed", False)])
def test_participles_are_recognized(name: str, is_odd: bool) -> None:
    assert is_participle(name) is is_odd
