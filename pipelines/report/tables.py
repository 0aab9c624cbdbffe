"""Tables of a run's evaluation by class and by slice, with 95 % intervals, as parts of a page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.report.evaluation import Split
from pipelines.report.figures.curves import wilson
from pipelines.report.page import Html, Part, table

MOST_ENTRIES = 60
"""Of a table; the worst ones of slices."""
_INTERVAL = "95 % interval"
_SHARES = {"loss": "mean loss", "positive": "share positive", "predicted_positive": "predicted positive"}
"""What is shown beside the accuracy: headings by the name of the sum."""
_MEANS = {"absolute": "mean absolute error", "rank": "mean rank", "loss": "mean loss"}
"""What is shown where there is no accuracy, the first that there is."""

Table = Mapping[str, Sequence[Any]]
_Slices = tuple[list[Part], list[list[Part]], np.ndarray, str]
"""Header, an entry for each value, how bad each is (more is worse), and what is said of all values together."""


def class_tables(splits: Sequence[Split]) -> list[Html]:
    """Recall and precision of each class, with 95 % intervals."""
    found = []
    for split in splits:
        if counts := split.tables.get("classes"):
            columns = [counts[name] for name in ("class", "rows", "predicted", "correct")]
            entries = [_class_entry(*values) for values in zip(*columns, strict=True)]
            header = ["class", "rows", "recall", _INTERVAL, "predicted", "precision", _INTERVAL]
            found.append(table(header, entries[:MOST_ENTRIES], f"By class, {split.name}{_cut(entries)}"))
    return found


def slice_tables(splits: Sequence[Split]) -> list[Html]:
    """A table for each column of `task.slices`: values with the largest error first, marked where the interval excludes the whole."""
    found = []
    for split in splits:
        slices = split.tables.get("slices", {})
        for name in dict.fromkeys(slices.get("column", ())):
            chosen = [place for place, column in enumerate(slices["column"]) if column == name]
            one = {key: [values[place] for place in chosen] for key, values in slices.items()}
            header, entries, badness, whole = _shares(one) if "correct" in one else _means(one)
            worst_first = np.argsort(-np.nan_to_num(badness, nan=np.inf), kind="stable")[:MOST_ENTRIES]
            caption = f"By {name}, {split.name}; {whole}the worst value first{_cut(entries)}"
            found.append(table(header, [entries[place] for place in worst_first], caption))
    return found


def _class_entry(name: str, rows: int, predicted: int, correct: int) -> list[Part]:
    recall = correct / rows if rows else "undefined: no row"
    precision = correct / predicted if predicted else "undefined: never predicted"
    return [str(name), rows, recall, _interval(correct, rows), predicted, precision, _interval(correct, predicted)]


def _interval(successes: float, rows: int) -> str:
    low, high = wilson(successes, rows)
    return f"{low:.3f} to {high:.3f}" if rows else "no rows"


def _shares(one: Table) -> _Slices:
    """Accuracies."""
    rows, right = np.array(one["rows"]), np.array(one["correct"], float)
    whole, more = right.sum() / rows.sum(), [key for key in _SHARES if key in one]
    entries: list[list[Part]] = []
    for place, value in enumerate(one["value"]):
        low, high = wilson(right[place], int(rows[place]))
        shares = [float(one[key][place] / rows[place]) for key in more]
        mark = _mark(is_worse=high < whole, is_better=low > whole)
        entries.append([str(value), int(rows[place]), float(right[place] / rows[place]), f"{low:.3f} to {high:.3f}", *shares, mark])
    header: list[Part] = ["value", "rows", "accuracy", _INTERVAL, *(_SHARES[key] for key in more), ""]
    return header, entries, -right / rows, f"accuracy of all rows {whole:.4f}; "


def _means(one: Table) -> _Slices:
    """Means of an error. Those of quantities have an interval from the standard error."""
    rows = np.array(one["rows"], float)
    entries: list[list[Part]] = [[str(value), int(count)] for value, count in zip(one["value"], rows, strict=True)]
    header: list[Part] = ["value", "rows"]
    measure = next((key for key in _MEANS if key in one), "")
    if not measure:  # of a task of one's own, which sums something else
        return header, entries, np.zeros(len(rows)), ""
    means, whole = np.array(one[measure], float) / rows, float(np.sum(one[measure]) / rows.sum())
    entries = [[*entry, float(mean)] for entry, mean in zip(entries, means, strict=True)]
    header += [_MEANS[measure]]
    if "squared" in one and "error" in one:
        header += [_INTERVAL, "mean error", ""]
        with np.errstate(invalid="ignore"):  # of an infinite error; the square of an absolute error is that of the error
            reach = 1.96 * np.sqrt(np.maximum(np.array(one["squared"], float) / rows - means**2, 0) / rows)
        for entry, low, high, error in zip(entries, means - reach, means + reach, np.array(one["error"], float) / rows, strict=True):
            entry += [f"{low:.4g} to {high:.4g}", float(error), _mark(is_worse=low > whole, is_better=high < whole)]
    return header, entries, means, f"{_MEANS[measure]} of all rows {whole:.4g}; "


def _mark(is_worse: bool, is_better: bool) -> str:
    return "worse than the whole" if is_worse else "better than the whole" if is_better else ""


def _cut(entries: Sequence[Any]) -> str:
    """What the caption adds if not all entries are shown."""
    return f"; {MOST_ENTRIES} of {len(entries):,}, and the others in the run's files" if len(entries) > MOST_ENTRIES else ""
