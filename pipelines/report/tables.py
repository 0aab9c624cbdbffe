"""Tables of a run's evaluation by class and by slice, with 95 % intervals, as parts of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.curves import wilson
from pipelines.report.rendering import PageTable

MOST_ENTRIES = 60
"""Of a table; the worst ones of slices."""
INTERVAL = "95 % interval"
_SHARES = {"loss": "mean loss", "positive": "share positive", "predicted_positive": "predicted positive"}
"""Headings of the columns beside the accuracy, by the name of the sum."""
_MEANS = {"absolute": "mean absolute error", "rank": "mean rank", "loss": "mean loss"}
"""Headings where there is no accuracy: the first sum of a slice counts."""

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class _Slices:
    """The values of one column, with what was measured for each."""

    header: list[str]
    entries: list[list[object]]
    badness: np.ndarray
    """How bad each value is, shape (entries,): more is worse."""
    total: str = ""
    """The measure of all values together, in words."""


def class_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """Recall and precision of each class, with 95 % intervals."""
    tables = []
    for split in splits:
        if counts := split.tables.get("classes"):
            columns = [counts[name] for name in ("class", "rows", "predicted", "correct")]
            entries = [class_entry(*values) for values in zip(*columns, strict=True)]
            header = ["class", "rows", "recall", INTERVAL, "predicted", "precision", INTERVAL]
            tables.append(PageTable(header, entries[:MOST_ENTRIES], f"By class, {split.name}{cut_note(entries)}"))
    return tables


def slice_tables(splits: Sequence[SplitEvaluation]) -> list[PageTable]:
    """A table for each column of `task.slices`: values with the largest error first, marked where the interval excludes the mean."""
    tables = []
    for split in splits:
        sums = split.tables.get("slices", {})
        for name in dict.fromkeys(sums.get("column", ())):
            places = [place for place, column in enumerate(sums["column"]) if column == name]
            column_sums = {key: [values[place] for place in places] for key, values in sums.items()}
            slices = _accuracies(column_sums) if "correct" in column_sums else _mean_errors(column_sums)
            worst_first = np.argsort(-np.nan_to_num(slices.badness, nan=np.inf), kind="stable")[:MOST_ENTRIES]
            caption = f"By {name}, {split.name}; {slices.total}the worst value first{cut_note(slices.entries)}"
            tables.append(PageTable(slices.header, [slices.entries[place] for place in worst_first], caption))
    return tables


def class_entry(name: str, rows: int, predicted: int, correct: int, *, unit: str = "row") -> list[object]:
    recall = correct / rows if rows else f"undefined: no {unit}"
    precision = correct / predicted if predicted else "undefined: never predicted"
    return [str(name), rows, recall, _interval(correct, rows), predicted, precision, _interval(correct, predicted)]


def _interval(successes: float, rows: int) -> str:
    low, high = wilson(successes, rows)
    return f"{low:.3f} to {high:.3f}" if rows else "no rows"


def _accuracies(sums: Columns) -> _Slices:
    rows, correct = np.array(sums["rows"]), np.array(sums["correct"], float)
    accuracy, keys = correct.sum() / rows.sum(), [key for key in _SHARES if key in sums]
    entries: list[list[object]] = []
    for place, value in enumerate(sums["value"]):
        low, high = wilson(correct[place], int(rows[place]))
        shares = [float(sums[key][place] / rows[place]) for key in keys]
        mark = _mark(is_worse=high < accuracy, is_better=low > accuracy)
        entries.append([str(value), int(rows[place]), float(correct[place] / rows[place]), f"{low:.3f} to {high:.3f}", *shares, mark])
    header = ["value", "rows", "accuracy", INTERVAL, *(_SHARES[key] for key in keys), ""]
    return _Slices(header, entries, -correct / rows, f"accuracy of all rows {accuracy:.4f}; ")


def _mean_errors(sums: Columns) -> _Slices:
    """Means of an error. Those of quantities have an interval from the standard error."""
    rows = np.array(sums["rows"], float)
    entries: list[list[object]] = [[str(value), int(count)] for value, count in zip(sums["value"], rows, strict=True)]
    header = ["value", "rows"]
    measure = next((key for key in _MEANS if key in sums), "")
    if not measure:  # of a task of one's own, which sums something else
        return _Slices(header, entries, np.zeros(len(rows)))
    means, mean = np.array(sums[measure], float) / rows, float(np.sum(sums[measure]) / rows.sum())
    entries = [[*entry, float(entry_mean)] for entry, entry_mean in zip(entries, means, strict=True)]
    header += [_MEANS[measure]]
    if "squared" in sums and "error" in sums:
        header += [INTERVAL, "mean error", ""]
        with np.errstate(invalid="ignore"):  # of an infinite error; the square of an absolute error is that of the error
            reach = 1.96 * np.sqrt(np.maximum(np.array(sums["squared"], float) / rows - means**2, 0) / rows)
        for entry, low, high, error in zip(entries, means - reach, means + reach, np.array(sums["error"], float) / rows, strict=True):
            entry += [f"{low:.4g} to {high:.4g}", float(error), _mark(is_worse=low > mean, is_better=high < mean)]
    return _Slices(header, entries, means, f"{_MEANS[measure]} of all rows {mean:.4g}; ")


def _mark(is_worse: bool, is_better: bool) -> str:
    return "worse than the whole" if is_worse else "better than the whole" if is_better else ""


def cut_note(entries: Sequence[Any]) -> str:
    """Addition to the caption if not all entries are shown."""
    return f"; {MOST_ENTRIES} of {len(entries):,}, and the others in the run's files" if len(entries) > MOST_ENTRIES else ""
