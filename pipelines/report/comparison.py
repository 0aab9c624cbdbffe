"""The page of two runs or more: which is better, what differs in their settings and data, results, curves and figures beside each other.

Words say which run is better, by how much, and whether beyond chance.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pipelines.report.better import Difference, metric_difference
from pipelines.report.cost import end_seconds, worker_hours
from pipelines.report.curves import training_charts
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.pictures import figures_by_split
from pipelines.report.rendering import Best, Code, Note, PageTable, readable, render
from pipelines.report.run_data import RunData
from pipelines.report.run_page import best_validation, difference, duration, final_values, metric_cell, training_facts
from pipelines.tasks.metrics.table import Value
from pipelines.tracking.client import flatten

Runs = Mapping[str, RunData]
"""Runs by their letter."""


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
            return list(_verdicts(metric, values, splits, runs))
    return []


def better_direction(splits: Sequence[SplitEvaluation], metric: str) -> str:
    """`higher` or `lower`, whichever is better of a metric; empty if the evaluations do not say."""
    return next((str(direction) for split in splits if (direction := split.summary.get("better", {}).get(metric))), "")


def _verdicts(metric: str, values: Mapping[str, float], splits: Mapping[str, SplitEvaluation], runs: Runs) -> Iterator[Note]:
    best_of = max if better_direction(list(splits.values()), metric) == "higher" else min
    best = best_of(values, key=lambda letter: values[letter])
    for other in values:
        if other == best:
            continue
        title = f"{splits[best].name} {metric}"
        scores = f"{title} {readable(values[best])} against {readable(values[other])}, "
        if values[best] == values[other]:
            yield Note(f"{best} and {other} are equal: {title} {readable(values[best])}.")
        elif len(digests := {runs[letter].run.tags.get("dataset.digest", "?") for letter in (best, other)}) > 1:
            datasets = " and ".join(sorted(digest[:12] for digest in digests))
            yield Note(
                f"{best} is ahead of {other}: {scores}but on other rows (datasets {datasets}), so nobody can tell whether that is chance.",
                "warning",
            )
        elif (measured := metric_difference(metric, splits[best], splits[other], len(values) - 1)) is None:
            yield Note(
                f"{best} is ahead of {other}: {scores}by {readable(abs(values[best] - values[other]))}. What was kept of the rows does not "
                "tell whether that is chance."
            )
        else:
            yield _verdict(best, other, scores, measured)


def _verdict(best: str, other: str, scores: str, measured: Difference) -> Note:
    low, high = (measured.low, measured.high) if measured.value > 0 else (-measured.high, -measured.low)
    interval = f"95 % interval {readable(low)} to {readable(high)}, on the same {measured.rows:,} rows"
    margin = f"{scores}by {readable(abs(measured.value))} ({interval})"
    if measured.is_beyond_chance:
        return Note(f"{best} is better than {other}: {margin}: beyond chance.", "good")
    return Note(f"{best} is ahead of {other}, but by no more than chance may give: {margin}.")


_ABSENT = "–"


def comparison_page(run_data: Sequence[RunData]) -> str:
    """The page. Runs are named by letters, in the order in which they were given."""
    runs = {chr(ord("A") + number): data for number, data in enumerate(run_data)}
    header = ["", *runs]
    return render(
        "comparison.html",
        title=f"{' and '.join(data.run.name for data in run_data)} compared",
        lead=", ".join(f"{letter} is run {data.run.run_id[:8]}" for letter, data in runs.items()),
        runs=[[letter, Code(data.run.run_id), data.run.name, data.run.experiment, data.run.status] for letter, data in runs.items()],
        verdicts=verdicts(runs),
        results=_results(header, run_data),
        settings=_differences(header, [_settings(data) for data in run_data], [data.is_baseline for data in run_data]),
        facts=_differences(header, [_data_and_code(data) for data in run_data]),
        cost=_cost(header, run_data),
        curves=training_charts({letter: data.run for letter, data in runs.items() if not data.is_baseline}),
        pictures=figures_by_split({letter: data.splits for letter, data in runs.items()}),
    )


def _settings(data: RunData) -> dict[str, Any]:
    """The flat config, without settings that a baseline does not use."""
    unused = ("task.", "train.") if data.is_baseline else ()
    return {name: value for name, value in flatten(data.config).items() if not name.startswith(unused)}


def _data_and_code(data: RunData) -> dict[str, Any]:
    return {name: value for name, value in training_facts(data) if name != "digest of the model"}


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
            rows.append([name, *(_cell(run_values.get(name, _ABSENT)) for run_values in values)])
    return PageTable(header, rows) if rows else None


def _cell(value: Any) -> object:
    return value if isinstance(value, Code | PageTable) else str(value)[:400]


def _results(header: list[str], run_data: Sequence[RunData]) -> PageTable | None:
    """Metrics of the test, and of the best epoch's validation, with the best value of each in bold."""
    values = [_best_epoch_values(data) for data in run_data]
    names = sorted({name for run_values in values for name in run_values}, key=lambda name: (not name.startswith("test/"), name))
    splits = [split for data in run_data for split in data.splits]
    rows: list[list[object]] = []
    for name in names:
        row = [run_values.get(name) for run_values in values]
        rows.append([name, *_result_cells(row, better_direction(splits, name.split("/", 1)[1])), difference(row[-1], row[0])])
    caption = "The test, and the validation of the best epoch; the best value in bold, where it is known"
    return PageTable([*header, f"{header[-1]} − {header[1]}"], rows, caption) if rows else None


def _best_epoch_values(data: RunData) -> dict[str, Value]:
    best = best_validation(data)
    return {**{name: value for name, value in final_values(data.run).items() if not (best and name.startswith("validation/"))}, **best}


def _result_cells(values: Sequence[Value | None], direction: str) -> list[object]:
    numbers = [value for value in values if isinstance(value, float)]
    best = (max(numbers) if direction == "higher" else min(numbers)) if len(set(numbers)) > 1 and direction else None
    return [Best(value) if best is not None and value == best else metric_cell(value) for value in values]


def _cost(header: list[str], run_data: Sequence[RunData]) -> PageTable:
    return PageTable(
        header,
        [
            ["steps", *(None if data.is_baseline else data.steps for data in run_data)],
            ["from begin to end", *(duration(end_seconds(data) - data.run.started) for data in run_data)],
            ["worker hours", *(worker_hours(data) for data in run_data)],
        ],
    )
