"""Tests wait for a moment with a bound, and say what did not come."""

import ast
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from waiting import wait_until

TESTS = Path(__file__).parents[1]


def test_a_wait_returns_what_came() -> None:
    numbers = count()
    assert wait_until(lambda: next(numbers) == 3 and "three", "3", pause_seconds=0.0) == "three"


def test_a_wait_that_is_over_says_for_what() -> None:
    with pytest.raises(AssertionError, match=r"^waited 0.01 s for a worker\nthe log$"):
        wait_until(lambda: False, "a worker", 0.01, say=lambda: "the log", pause_seconds=0.001)


def endless_loops(source: str) -> Iterator[int]:
    """Lines of the loops that sleep until something holds and have no end: none that the clock sets, and no event to wait for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While):
            called = {ast.unparse(call.func).rpartition(".")[2] for call in ast.walk(node) if isinstance(call, ast.Call)}
            if "sleep" in called and not called & {"monotonic", "wait"}:
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("while not path.exists():\n    time.sleep(0.1)", [1]),
        ("while True:\n    if done():\n        break\n    sleep(1)", [1]),
        ("while not path.exists():\n    assert time.monotonic() < deadline\n    time.sleep(0.1)", []),
        ("while time.monotonic() < deadline:\n    time.sleep(0.1)", []),
        ("while not over.wait(0.1):\n    time.sleep(0.1)", []),
        ("while words:\n    words.pop()", []),
        ("'while True: time.sleep(1)'", []),
    ],
)
def test_a_loop_without_an_end_is_found(source: str, lines: list[int]) -> None:
    assert list(endless_loops(source)) == lines


def test_no_test_polls_without_an_end() -> None:
    places = [f"{path.relative_to(TESTS)}:{line}" for path in sorted(TESTS.rglob("*.py")) for line in endless_loops(path.read_text())]
    assert not places, f"{', '.join(places)}: a loop sleeps without a deadline; call waiting.wait_until"
