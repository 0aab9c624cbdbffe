"""Readable predictions from the output of a network, by the `form` that the task of the model gave."""

import json
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np

Answer = Callable[[np.ndarray, Mapping[str, Any]], list[dict[str, Any]]]
ANSWERS: dict[str, Answer] = {}
"""By the name of the form: a prediction for each row of the output, given the form's settings."""
LEFT_OUT = {"mask": frozenset({"prediction"})}
"""Columns of a form that examples leave out: of hundreds of thousands of pixels, one between two classes may differ by rounding."""
_FIRST_ITEM = 2
"""The number of the most frequent item; padding and unknown items are before it."""


def answer(name: str) -> Callable[[Answer], Answer]:
    """Register the predictions of a form."""

    def register(predictions: Answer) -> Answer:
        ANSWERS[name] = predictions
        return predictions

    return register


@answer("output")
def outputs(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answers of a task without a form."""
    return [{"output": values} for values in output.tolist()]


@answer("binary")
def binary_classes(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes from the logit of the second one, which is calibrated, and decided for where its probability is above the threshold."""
    logits = output.astype(np.float64)[:, 0] * form.get("scale", 1.0) + form.get("shift", 0.0)
    second, threshold = np.exp(-np.logaddexp(0, -logits)), form.get("threshold", 0.5)
    decided = logits > log(threshold) - log(1 - threshold)
    return _classes(np.stack([1 - second, second], axis=1), form["classes"], decided.astype(np.int64))


@answer("classes")
def several_classes(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes from a logit for each."""
    logits = output.astype(np.float64)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return _classes(exponentials / exponentials.sum(axis=1, keepdims=True), form["classes"])


def _classes(probabilities: np.ndarray, names: Sequence[str], decided: np.ndarray | None = None) -> list[dict[str, Any]]:
    """The classes that are `decided` for, or else the most probable ones."""
    best = probabilities.argmax(axis=1) if decided is None else decided
    return [
        {"prediction": names[place]} | {f"probability_{name}": value for name, value in zip(names, row, strict=True)}
        for place, row in zip(best.tolist(), probabilities.tolist(), strict=True)
    ]


@answer("quantity")
def quantity(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"prediction": value} for value in decode_target(output.astype(np.float64)[:, 0], form).tolist()]


@answer("counts")
def counts(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The mean from its logarithm, and the dispersion where the output has one."""
    wide = output.astype(np.float64)
    rows = [{"prediction": value} for value in np.exp(wide[:, 0] + form["log_mean"]).tolist()]
    if "largest_log_dispersion" in form:
        dispersions = np.exp(np.clip(wide[:, 1], -form["largest_log_dispersion"], form["largest_log_dispersion"]))
        rows = [{**row, "dispersion": value} for row, value in zip(rows, dispersions.tolist(), strict=True)]
    return rows


@answer("quantiles")
def quantiles(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [f"quantile_{level}" for level in form["quantiles"]]
    decoded = decode_target(np.sort(output.astype(np.float64), axis=1), form).tolist()
    return [{"prediction": row[form["middle"]], **dict(zip(names, row, strict=True))} for row in decoded]


@answer("ordinal")
def rank_classes(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes from the logits of being above each but the highest: the first, and by how much each further one is lower."""
    wide = output.astype(np.float64)
    logits = np.concatenate([wide[:, :1], wide[:, :1] - np.logaddexp(0, wide[:, 1:]).cumsum(axis=1)], axis=1)
    log_above, log_below = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    between = log_above[:, :-1] + log_below[:, 1:] - np.logaddexp(0, -wide[:, 1:])
    return _classes(np.exp(np.concatenate([log_below[:, :1], between, log_above[:, -1:]], axis=1)), form["classes"])


@answer("labels")
def labels(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A JSON array of the labels that are more probable than not, from a logit for each."""
    names, probabilities = form["classes"], np.exp(-np.logaddexp(0, -output.astype(np.float64)))
    return [
        {"prediction": json.dumps([name for name, logit in zip(names, logits, strict=True) if logit > 0], ensure_ascii=False)}
        | {f"probability_{name}": value for name, value in zip(names, row, strict=True)}
        for logits, row in zip(output.tolist(), probabilities.tolist(), strict=True)
    ]


@answer("numbers")
def several_numbers(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [f"prediction_{name}" for name in form["names"]]
    return [dict(zip(names, row, strict=True)) for row in decode_target(output.astype(np.float64), form).tolist()]


@answer("forecast")
def forecast(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Shape (horizon, series) for each row."""
    return [{"prediction": values} for values in decode_target(output.astype(np.float64), form).tolist()]


@answer("field")
def functions(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Functions on a grid, of the target's shape."""
    shaped = output.astype(np.float64).reshape(len(output), *form["shape"])
    return [{"prediction": values} for values in decode_target(shaped, form).tolist()]


@answer("items")
def top_items(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items with the highest scores, best first."""
    scores, names = output[:, _FIRST_ITEM:], form["items"]
    best = np.argsort(-scores, axis=1, kind="stable")[:, : form["count"]]
    chosen = [[names[place] for place in row] for row in best.tolist()]
    return [
        {"prediction": row[0], "items": row, "scores": scores[number, best[number]].astype(np.float64).tolist()}
        for number, row in enumerate(chosen)
    ]


@answer("mask")
def masks(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The number of the most probable class of each pixel, nested lists, and the share of pixels of each class."""
    predicted, names = output.argmax(axis=1), form["classes"]
    return [
        {"prediction": mask.tolist(), **{f"share_{name}": float((mask == number).mean()) for number, name in enumerate(names)}}
        for mask in predicted
    ]


@answer("likelihood")
def likelihood(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures from nats, tokens and bytes of each text."""
    return [
        {"nats_per_token": nats / tokens, "bits_per_byte": nats / log(2) / size, "nats": nats, "tokens": tokens}
        for nats, tokens, size in output.astype(np.float64).tolist()
    ]


@answer("word_likelihood")
def word_likelihood(output: np.ndarray, form: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures from nats, words and unknown words of each text."""
    return [
        {"nats_per_token": nats / tokens, "unknown": unknown, "nats": nats, "tokens": tokens}
        for nats, tokens, unknown in output.astype(np.float64).tolist()
    ]


DECODES = ("identity", "log1p", "minmax", "normal_quantile", "robust", "scale", "standardize", "vector")
"""Encoders of targets that are quantities."""


def decode_target(values: np.ndarray, form: Mapping[str, Any]) -> np.ndarray:
    """Values of the target in the units of the query."""
    state, settings = form["state"], form["encoder"]
    match settings["encoder"]:
        case "standardize" | "vector":
            return values * state["deviation"] + state["mean"]
        case "minmax":
            return values * state["span"] + state["minimum"]
        case "log1p":
            return np.copysign(np.expm1(np.abs(values)), values)
        case "normal_quantile":
            return np.interp(values, state["deviates"], state["points"])
        case "robust":
            last = float(np.nextafter(np.float32(3), np.float32(0)))
            inside = np.clip(values.astype(np.float64), -last, last)
            return inside / np.sqrt(1 - np.square(inside / 3.0)) * state["scale"] + state["median"]
        case "scale":
            moments = {**settings, **state}
            return values * moments["deviation"] + moments["mean"]
    return values
