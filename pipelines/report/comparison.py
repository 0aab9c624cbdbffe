"""The page of two runs or more: which is better, what differs in their settings and data, results, curves and figures beside each other."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pipelines.report.cost import end_of, worker_hours
from pipelines.report.curves import training_charts
from pipelines.report.page import Html, Part, contents, element, grid, note, page, section, table
from pipelines.report.pictures import figures_beside
from pipelines.report.run_data import Material
from pipelines.report.run_page import best_validation, difference, duration, final_values, shown, trained
from pipelines.report.verdict import better, verdicts
from pipelines.tasks.values import Value
from pipelines.tracking.client import flatten

_ABSENT = "–"


def comparison_page(materials: Sequence[Material]) -> Html:
    """The file. Runs are named by letters, in the order in which they were given."""
    letters = [chr(ord("A") + number) for number in range(len(materials))]
    named = dict(zip(letters, materials, strict=True))
    header: list[Part] = ["", *letters]
    charts = training_charts({letter: material.run for letter, material in named.items() if not material.is_baseline})
    parts: list[tuple[str, list[Part]]] = [
        ("Runs", [table(["", "run", "name", "experiment", "status"], [_who(letter, material) for letter, material in named.items()])]),
        ("Which is better", [*verdicts(named)]),
        ("Results", [_results(header, materials)]),
        (
            "Settings that differ",
            [_differing(header, _settings(materials), "The configs are equal.", [one.is_baseline for one in materials])],
        ),
        ("Data and code that differ", [_differing(header, [_facts(material) for material in materials], "Data and code are the same.")]),
        ("Cost", [_cost(header, materials)]),
        ("Curves", [grid(charts) if charts else note("The runs have logged no points.")]),
        ("Pictures", [*figures_beside({letter: material.splits for letter, material in named.items()})]),
    ]
    title = " and ".join(material.run.name for material in materials)
    body = [contents(name for name, _ in parts), *(section(name, inner) for name, inner in parts)]
    return page(f"{title} compared", body, ", ".join(f"{letter} is run {one.run.run_id[:8]}" for letter, one in named.items()))


def _who(letter: str, material: Material) -> list[Part]:
    run = material.run
    return [letter, element("code", run.run_id), run.name, run.experiment, run.status]


def _settings(materials: Sequence[Material]) -> list[Mapping[str, Any]]:
    """The configs, flat, without what a baseline does not use of its own."""
    return [
        {name: value for name, value in flatten(one.config).items() if not (one.is_baseline and name.startswith(("task.", "train.")))}
        for one in materials
    ]


def _facts(material: Material) -> dict[str, Any]:
    return {name: value for name, value in trained(material) if name != "digest of the model"}


def _differing(header: list[Part], values: Sequence[Mapping[str, Any]], equal: str, unused: Sequence[bool] = ()) -> Html:
    """What is not the same in all runs. Of those that are `unused`, an absent value is no difference."""
    names = list(dict.fromkeys(name for one in values for name in one))
    rows: list[list[Part]] = []
    for name in names:
        compared = {str(one.get(name, _ABSENT)) for one, is_unused in zip_longest(values, unused) if name in one or not is_unused}
        if len(compared) > 1:
            rows.append([name, *(_shown(one.get(name, _ABSENT)) for one in values)])
    return table(header, rows) if rows else note(equal)


def _shown(value: Any) -> Part:
    return value if isinstance(value, Html) else str(value)[:400]


def _results(header: list[Part], materials: Sequence[Material]) -> Html:
    """Metrics of the test, and of the best epoch's validation, with the best value of each in bold."""
    values = [_of_best_epoch(one) for one in materials]
    names = sorted({name for one in values for name in one}, key=lambda name: (not name.startswith("test/"), name))
    splits = [split for material in materials for split in material.splits]
    rows: list[list[Part]] = []
    for name in names:
        each = [one.get(name) for one in values]
        rows.append([name, *_marked(each, better(splits, name.split("/", 1)[1])), difference(each[-1], each[0])])
    if not rows:
        return note("No run has a result yet.")
    return table(
        [*header, f"{header[-1]} − {header[1]}"],
        rows,
        "The test, and the validation of the best epoch; the best value in bold, where it is known",
    )


def _of_best_epoch(material: Material) -> dict[str, Value]:
    final = final_values(material.run)
    best = best_validation(material)
    return {**{name: value for name, value in final.items() if not (best and name.startswith("validation/"))}, **best}


def _marked(values: Sequence[Value | None], direction: str) -> list[Part]:
    numbers = [value for value in values if isinstance(value, float)]
    best = (max(numbers) if direction == "higher" else min(numbers)) if numbers and direction else None
    is_told = best is not None and len(set(numbers)) > 1
    return [element("b", shown(value)) if is_told and value == best else shown(value) for value in values]


def _cost(header: list[Part], materials: Sequence[Material]) -> Html:
    rows: list[list[Part]] = [
        ["steps", *(None if one.is_baseline else one.steps for one in materials)],
        ["from begin to end", *(duration(end_of(one) - one.run.started) for one in materials)],
        ["worker hours", *(worker_hours(one) for one in materials)],
    ]
    return table(header, rows)
