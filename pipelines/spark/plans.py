"""Walks Spark's logical plans, which have no Python API."""

from collections.abc import Iterator
from typing import Any

JavaObject = Any
"""A plan, or an expression in one."""


def nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """A plan's nodes, root first, with those of subqueries and of WITH."""
    yield plan
    for child in child_plans(plan):
        yield from nodes(child)


def child_plans(plan: JavaObject) -> Iterator[JavaObject]:
    yield from items(plan.children())
    yield from items(plan.subqueries())
    if kind(plan) == "UnresolvedWith":
        yield from items(plan.innerChildren())


def items(sequence: JavaObject) -> Iterator[JavaObject]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


def kind(node: JavaObject) -> str:
    """The class name of a node or an expression."""
    return str(node.getClass().getSimpleName()).removesuffix("$")
