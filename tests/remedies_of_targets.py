"""Remedies of errors about targets and weights: what raises each, and what it offers instead."""

from remedy_cases import Do, fit_columns

CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "but weights are at least 0, and some are more": (
        lambda folder: fit_columns("weight", a=[0, 0, 0]),
        (lambda folder: fit_columns({"b": "weight"}, a=[0, 0, 0], b=[0, 1, 2]), lambda folder: fit_columns("weight", a=[1, 1, 1])),
    ),
}
