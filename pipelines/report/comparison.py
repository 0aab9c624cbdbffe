"""The page of two runs or more: which is better, and whether that is more than the choice of the rows could do; what differs in their
settings and data, results, curves and figures beside each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import NormalDist
from typing import Any

import numpy as np

from pipelines.config.slices import slice_modules
from pipelines.ranking import average_precision_influences, ratio_influences, roc_area_influences
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.page_parts import figures_by_split, training_charts
from pipelines.report.rendering import Best, Code, Note, PageTable, readable, render
from pipelines.report.run_data import RunData, end_seconds, worker_hours
from pipelines.report.run_page import best_validation, difference, duration, final_values, metric_cell, training_facts
from pipelines.tasks.metrics.table import Value
from pipelines.tracking.params_and_tags import flatten

Columns = Mapping[str, np.ndarray]
Runs = Mapping[str, RunData]
"""Runs by their letter."""
LEAST_ROWS = 20
"""Rows below which there is no interval."""
_ABSENT = "–"
Influence = tuple[Callable[..., np.ndarray], tuple[str, ...]]
"""A function, and the columns of the rows' outcomes that are its arguments."""
_INFLUENCES: dict[str, Influence] = {
    "auc": (roc_area_influences, ("score", "positive")),
    "average_precision": (average_precision_influences, ("score", "positive")),
    "loss": (ratio_influences, ("cross_entropy", "known")),
    "rmse": (lambda squares: squares / (2 * np.sqrt(squares.mean())), ("mse",)),
}
"""By metric of the core that is no mean of the column with its own name."""


@dataclass(frozen=True)
class Difference:
    """Of a metric of two runs on the same rows."""

    value: float
    low: float
    high: float
    rows: int
    """Of the split."""

    @property
    def is_beyond_chance(self) -> bool:
        return self.low > 0 or self.high < 0


def metric_difference(metric: str, split: SplitEvaluation, other: SplitEvaluation, comparisons: int = 1) -> Difference | None:
    """The metric of `split` less that of `other`, with the interval that holds the difference on all rows of this kind with 95 %
    confidence; wider, by Bonferroni's rule, among several `comparisons`. None if the rows do not tell."""
    values = [evaluation.summary.get("metrics", {}).get(metric) for evaluation in (split, other)]
    joined = _same_rows(split, other)
    if joined is None or not all(isinstance(value, float | int) for value in values):
        return None
    first, second = (influences(metric, columns) for columns in joined)
    if first is None or second is None:
        return None
    rows = int(split.summary["rows"])
    spread = float(np.std(first - second, ddof=1))
    reach = float(NormalDist().inv_cdf(1 - 0.025 / comparisons) * spread / np.sqrt(rows))
    value = float(values[0]) - float(values[1])
    return Difference(value, value - reach, value + reach, rows) if np.isfinite(reach) else None


def influences(metric: str, columns: Columns) -> np.ndarray | None:
    """Each row's influence on the metric, up to a constant, shape (rows,); None if the columns do not give this metric.

    A slice adds those of its metrics in `INFLUENCES` of its module `figures`.
    """
    by_metric = dict(_INFLUENCES)
    for module in slice_modules("figures").values():
        by_metric |= getattr(module, "INFLUENCES", {})
    influence, names = by_metric.get(metric, (None, ()))
    if influence is None or not all(name in columns for name in names):
        return columns.get(metric)
    with np.errstate(all="ignore"):
        return influence(*(columns[name] for name in names))


def _same_rows(split: SplitEvaluation, other: SplitEvaluation) -> tuple[Columns, Columns] | None:
    """The outcomes of the rows that both have kept, in one order."""
    outcomes = [evaluation.tables.get("outcomes", {}) for evaluation in (split, other)]
    tables = [{name: np.array(values) for name, values in columns.items()} for columns in outcomes]
    if split.summary.get("rows") != other.summary.get("rows") or not all(len(table.get("row", ())) for table in tables):
        return None
    _, *places = np.intersect1d(tables[0]["row"], tables[1]["row"], assume_unique=True, return_indices=True)
    if len(places[0]) < LEAST_ROWS:
        return None
    first, second = ({name: values[chosen] for name, values in table.items()} for table, chosen in zip(tables, places, strict=True))
    return first, second


def verdicts(runs: Runs) -> list[Note]:
    """A note for the best run against each other one; empty if fewer than two runs have an evaluation."""
    for name in ("test", "validation"):
        splits = {letter: split for letter, run in runs.items() for split in run.splits if split.name == name}
        metric = next((str(split.summary["monitor"]) for split in splits.values() if "monitor" in split.summary), "")
        values = {
            letter: value
            for letter, split in splits.items()
            if isinstance(value := split.summary.get("metrics", {}).get(metric), float | int)
        }
        if len(values) >= 2:
            best_of = max if better_direction(list(splits.values()), metric) == "higher" else min
            best = best_of(values, key=lambda letter: values[letter])
            return [_verdict(best, other, metric, values, splits, runs) for other in values if other != best]
    return []


def better_direction(splits: Sequence[SplitEvaluation], metric: str) -> str:
    """`higher` or `lower`, whichever is better of a metric; empty if the evaluations do not say."""
    return next((str(direction) for split in splits if (direction := split.summary.get("better", {}).get(metric))), "")


def _verdict(best: str, other: str, metric: str, values: Mapping[str, float], splits: Mapping[str, SplitEvaluation], runs: Runs) -> Note:
    title = f"{splits[best].name} {metric}"
    if values[best] == values[other]:
        return Note(f"{best} and {other} are equal: {title} {readable(values[best])}.")
    scores = f"{title} {readable(values[best])} against {readable(values[other])}, "
    digests = {runs[letter].run.tags.get("dataset.digest", "?") for letter in (best, other)}
    if len(digests) > 1:
        datasets = " and ".join(sorted(digest[:12] for digest in digests))
        return Note(
            f"{best} is ahead of {other}: {scores}but on other rows (datasets {datasets}), so nobody can tell whether that is chance.",
            "warning",
        )
    measured = metric_difference(metric, splits[best], splits[other], len(values) - 1)
    if measured is None:
        return Note(
            f"{best} is ahead of {other}: {scores}by {readable(abs(values[best] - values[other]))}. What was kept of the rows does not "
            "tell whether that is chance."
        )
    low, high = (measured.low, measured.high) if measured.value > 0 else (-measured.high, -measured.low)
    interval = f"95 % interval {readable(low)} to {readable(high)}, on the same {measured.rows:,} rows"
    margin = f"{scores}by {readable(abs(measured.value))} ({interval})"
    if measured.is_beyond_chance:
        return Note(f"{best} is better than {other}: {margin}: beyond chance.", "good")
    return Note(f"{best} is ahead of {other}, but by no more than chance may give: {margin}.")


def comparison_page(run_data: Sequence[RunData]) -> str:
    """The page. Runs are named by letters, in the order in which they were given."""
    runs = {chr(ord("A") + number): data for number, data in enumerate(run_data)}
    header = ["", *runs]
    settings, facts = [], []
    for data in run_data:
        unused = ("task.", "train.") if data.is_baseline else ()
        settings.append({name: value for name, value in flatten(data.config).items() if not name.startswith(unused)})
        facts.append({name: value for name, value in training_facts(data) if name != "digest of the model"})
    cost: list[list[object]] = [
        ["steps", *(None if data.is_baseline else data.steps for data in run_data)],
        ["from begin to end", *(duration(end_seconds(data) - data.run.started) for data in run_data)],
        ["worker hours", *(worker_hours(data) for data in run_data)],
    ]
    return render(
        "comparison.html",
        title=f"{' and '.join(data.run.name for data in run_data)} compared",
        lead=", ".join(f"{letter} is run {data.run.run_id[:8]}" for letter, data in runs.items()),
        runs=[[letter, Code(data.run.run_id), data.run.name, data.run.experiment, data.run.status] for letter, data in runs.items()],
        verdicts=verdicts(runs),
        results=_results(header, run_data),
        settings=_differences(header, settings, [data.is_baseline for data in run_data]),
        facts=_differences(header, facts),
        cost=PageTable(header, cost),
        curves=training_charts({letter: data.run for letter, data in runs.items() if not data.is_baseline}),
        pictures=figures_by_split({letter: data.splits for letter, data in runs.items()}),
    )


def _differences(header: list[str], values: Sequence[Mapping[str, Any]], are_partial: Iterable[bool] = ()) -> PageTable | None:
    """The values that are not the same in all runs. Where values are partial, an absent one is no difference."""
    rows: list[list[Any]] = []
    for name in dict.fromkeys(name for run_values in values for name in run_values):
        different = {
            str(run_values.get(name, _ABSENT))
            for run_values, is_partial in zip_longest(values, are_partial)
            if name in run_values or not is_partial
        }
        if len(different) > 1:
            cells = [run_values.get(name, _ABSENT) for run_values in values]
            rows.append([name, *(cell if isinstance(cell, Code | PageTable) else str(cell)[:400] for cell in cells)])
    return PageTable(header, rows) if rows else None


def _results(header: list[str], run_data: Sequence[RunData]) -> PageTable | None:
    """Metrics of the test, and of the best epoch's validation, with the best value of each in bold."""
    values: list[dict[str, Value]] = []
    for data in run_data:
        best_epoch = best_validation(data)
        final = {name: value for name, value in final_values(data.run).items() if not (best_epoch and name.startswith("validation/"))}
        values.append({**final, **best_epoch})
    names = sorted({name for run_values in values for name in run_values}, key=lambda name: (not name.startswith("test/"), name))
    splits = [split for data in run_data for split in data.splits]
    rows: list[list[object]] = []
    for name in names:
        row = [run_values.get(name) for run_values in values]
        numbers = [value for value in row if isinstance(value, float)]
        direction = better_direction(splits, name.split("/", 1)[1])
        best = (max(numbers) if direction == "higher" else min(numbers)) if len(set(numbers)) > 1 and direction else None
        cells = [Best(value) if best is not None and value == best else metric_cell(value) for value in row]
        rows.append([name, *cells, difference(row[-1], row[0])])
    caption = "The test, and the validation of the best epoch; the best value in bold, where it is known"
    return PageTable([*header, f"{header[-1]} − {header[1]}"], rows, caption) if rows else None
