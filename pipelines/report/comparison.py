"""The page of two runs or more: which is better, what differs in their settings and data, results, curves and figures beside each other."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pipelines.report.cost import end_seconds, worker_hours
from pipelines.report.curves import training_charts
from pipelines.report.parts import Best, Code, PageTable
from pipelines.report.pictures import figures_by_split
from pipelines.report.rendering import render
from pipelines.report.run_data import RunData
from pipelines.report.run_page import best_validation, difference, duration, final_values, metric_cell, training_facts
from pipelines.report.verdict import better_direction, verdicts
from pipelines.tasks.values import Value
from pipelines.tracking.client import flatten

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
