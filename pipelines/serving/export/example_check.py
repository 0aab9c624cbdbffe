"""Compares the predictions of an exported folder with those that the model in MLflow made for its examples."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = "examples.json"
Predict = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]


def check_examples(folder: Path, predict: Predict, inexact: Collection[str] = ()) -> str:
    """A line that says how many examples agree, without the columns that are `inexact`. Raises ValueError for the first one that does not.
    A model in 8 bits need not agree in numbers: of its examples, those that are refused must be the same."""
    examples = json.loads((folder / EXAMPLES).read_bytes())
    predictions = predict(examples["rows"])
    for number, (prediction, expected) in enumerate(zip(predictions, examples["predictions"], strict=True)):
        names = (expected.keys() | prediction.keys()).difference(inexact) if examples["exact"] else {"refused"}
        value, target = ({name: row[name] for name in names if name in row} for row in (prediction, expected))
        if difference := next(_differences(value, target, examples["tolerance"]), None):
            raise ValueError(f"example {number}: {difference}")
    if examples["exact"]:
        return f"{len(predictions)} examples agree"
    pairs = [
        (value["prediction"], other["prediction"])
        for value, other in zip(predictions, examples["predictions"], strict=True)
        if isinstance(other.get("prediction"), str)
    ]
    decisions = f", and {sum(value == other for value, other in pairs)} of {len(pairs)} decisions are equal" if pairs else ""
    return f"of {len(predictions)} examples, the same are refused{decisions}"


def _differences(value: Any, expected: Any, tolerance: float) -> Iterator[str]:
    """The differences of two predictions: numbers by more than the tolerance, relative beyond 1; anything else at all."""
    if isinstance(expected, dict):
        for name in expected.keys() | value.keys():
            yield from (f"{name}: {text}" for text in _differences(value.get(name), expected.get(name), tolerance))
    elif isinstance(expected, list) and isinstance(value, list) and len(value) == len(expected):
        for item, expected_item in zip(value, expected, strict=True):
            yield from _differences(item, expected_item, tolerance)
    elif isinstance(expected, float) and isinstance(value, (int, float)):
        if not math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{value} instead of {expected}"
    elif value != expected:
        yield f"{value!r:.80} instead of {expected!r:.80}"
