"""Readable predictions from the output of a network, with NumPy alone: those of the served model and of exported folders.

A task says by its `prediction_form` which function makes its predictions, and with which settings. An application's own stands in its
folder.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import log
from typing import Any

import numpy as np

Decode = Callable[[np.ndarray], np.ndarray]
"""Converts values of the target back to the units of the query."""
Columns = dict[str, Sequence[Any]]
Answer = Callable[[np.ndarray, Mapping[str, Any], Decode], Columns]
"""Columns of predictions, a value for each row of the output, with the settings of a form and what decodes the target."""
_ANSWERS: dict[str, Answer] = {}
"""By the name that a form has."""


def declare_answer(form: str) -> Callable[[Answer], Answer]:
    """Declares the function below it as what forms of this name stand for."""

    def declare(function: Answer) -> Answer:
        _ANSWERS[form] = function
        return function

    return declare


def find_answer(form: Mapping[str, Any]) -> Answer:
    """The function that `form` names, by `declare_answer` or as `module:function`; without one, that of outputs as they are."""
    module, _, name = str(form.get("form", "output")).rpartition(":")
    return getattr(import_module(module), name) if module else _ANSWERS[name]


@declare_answer("output")
def plain_outputs(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """Answers of a task without a form."""
    return {"output": output.tolist()}


@declare_answer("binary")
def binary_classes(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """Classes from the logit of the second one, which is calibrated, and decided for where its probability is above the threshold."""
    logits = output.astype(np.float64)[:, 0] * form.get("scale", 1.0) + form.get("shift", 0.0)
    second, threshold = sigmoid(logits), form.get("threshold", 0.5)
    is_second = logits > log(threshold) - log(1 - threshold)
    return _classes(np.stack([1 - second, second], axis=1), form["classes"], is_second.astype(np.int64))


@declare_answer("classes")
def several_classes(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    logits = output.astype(np.float64)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return _classes(exponentials / exponentials.sum(axis=1, keepdims=True), form["classes"], logits.argmax(axis=1))


@declare_answer("ordinal")
def rank_classes(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """Classes from the logits of being above each but the highest: the first, and by how much each further one is lower."""
    wide = output.astype(np.float64)
    logits = np.concatenate([wide[:, :1], wide[:, :1] - np.logaddexp(0, wide[:, 1:]).cumsum(axis=1)], axis=1)
    log_above, log_below = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    between = log_above[:, :-1] + log_below[:, 1:] - np.logaddexp(0, -wide[:, 1:])
    probabilities = np.exp(np.concatenate([log_below[:, :1], between, log_above[:, -1:]], axis=1))
    return _classes(probabilities, form["classes"], probabilities.argmax(axis=1))


def _classes(probabilities: np.ndarray, names: Sequence[str], predicted: np.ndarray) -> Columns:
    return {"prediction": [names[number] for number in predicted.tolist()], **_probability_columns(probabilities, names)}


def _probability_columns(probabilities: np.ndarray, names: Sequence[str]) -> Columns:
    return {f"probability_{name}": probabilities[:, number].tolist() for number, name in enumerate(names)}


@declare_answer("labels")
def several_labels(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """The labels that are more probable than not, as a JSON array, from a logit for each."""
    names, probabilities = form["classes"], sigmoid(output.astype(np.float64))
    labels = [[name for name, logit in zip(names, row, strict=True) if logit > 0] for row in output.tolist()]
    return {
        "prediction": [json.dumps(row_labels, ensure_ascii=False) for row_labels in labels],
        **_probability_columns(probabilities, names),
    }


@declare_answer("quantity")
def quantity(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    return {"prediction": _floats(decode(output.astype(np.float64)[:, 0]))}


@declare_answer("numbers")
def several_quantities(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    decoded = np.asarray(decode(output.astype(np.float64)), np.float64)
    return {f"prediction_{name}": decoded[:, number].tolist() for number, name in enumerate(form["names"])}


@declare_answer("array")
def array_of_quantities(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """Nested lists, of the `shape` of the form or of that of the output."""
    values = output.astype(np.float64)
    return {"prediction": _floats(decode(values.reshape(len(values), *form["shape"]) if "shape" in form else values))}


@declare_answer("counts")
def mean_counts(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """The mean from its logarithm, and the dispersion where the output has one."""
    wide = output.astype(np.float64)
    columns = {"prediction": np.exp(wide[:, 0] + form["log_mean"]).tolist()}
    if "largest_log_dispersion" in form:
        limit = form["largest_log_dispersion"]
        columns["dispersion"] = np.exp(np.clip(wide[:, 1], -limit, limit)).tolist()
    return columns


@declare_answer("quantiles")
def ascending_quantiles(output: np.ndarray, form: Mapping[str, Any], decode: Decode) -> Columns:
    """The quantiles in ascending order, of output of shape (rows, quantiles, …): no encoder of a quantity changes the order of values."""
    decoded = np.asarray(decode(np.sort(output.astype(np.float64), axis=1)), np.float64)
    by_level = {f"quantile_{level}": decoded[:, number].tolist() for number, level in enumerate(form["quantiles"])}
    return {"prediction": decoded[:, form["middle"]].tolist(), **by_level}


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x), without overflow."""
    return np.exp(-np.logaddexp(0, -logits))


def _floats(values: np.ndarray) -> list[Any]:
    floats: list[Any] = np.asarray(values, np.float64).tolist()
    return floats
