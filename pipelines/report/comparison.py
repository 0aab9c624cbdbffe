"""The page of two runs or more: what differs in their settings and data, their results, and their curves over each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.report.curves import training_charts
from pipelines.report.material import Material
from pipelines.report.page import Html, Part, contents, element, grid, note, page, section, table
from pipelines.report.run_page import difference, final_values, shown, trained
from pipelines.tracking.client import flattened

_ABSENT = "–"


def comparison_page(materials: Sequence[Material]) -> Html:
    """The file. Runs are named by letters, in the order in which they were given."""
    letters = [chr(ord("A") + number) for number in range(len(materials))]
    named = dict(zip(letters, materials, strict=True))
    header: list[Part] = ["", *letters]
    who = table(["", "run", "name", "experiment", "status"], [_who(letter, material) for letter, material in named.items()])
    charts = training_charts({letter: material.run for letter, material in named.items()})
    parts: list[tuple[str, list[Part]]] = [
        ("Runs", [who]),
        ("Settings that differ", [_differing(header, [flattened(material.config) for material in materials], "The configs are equal.")]),
        ("Data and code that differ", [_differing(header, [_facts(material) for material in materials], "Data and code are the same.")]),
        ("Results", [_results(header, materials)]),
        ("Curves", [grid(charts) if charts else note("The runs have logged no points.")]),
    ]
    title = " and ".join(material.run.name for material in materials)
    body = [contents(name for name, _ in parts), *(section(name, inner) for name, inner in parts)]
    return page(f"{title} compared", body, ", ".join(f"{letter} is run {one.run.run_id[:8]}" for letter, one in named.items()))


def _who(letter: str, material: Material) -> list[Part]:
    run = material.run
    return [letter, element("code", run.run_id), run.name, run.experiment, run.status]


def _facts(material: Material) -> dict[str, Any]:
    return {name: value for name, value in trained(material) if name != "digest of the model"}


def _differing(header: list[Part], values: Sequence[Mapping[str, Any]], equal: str) -> Html:
    names = list(dict.fromkeys(name for one in values for name in one))
    every = {name: [one.get(name, _ABSENT) for one in values] for name in names}
    rows = [[name, *map(_shown, each)] for name, each in every.items() if len(set(map(str, each))) > 1]
    return table(header, rows) if rows else note(equal)


def _shown(value: Any) -> Part:
    return value if isinstance(value, Html) else str(value)[:400]


def _results(header: list[Part], materials: Sequence[Material]) -> Html:
    values = [final_values(one.run) for one in materials]
    names = sorted({name for one in values for name in one}, key=lambda name: (not name.startswith("test/"), name))
    rows: list[list[Part]] = [
        [name, *(shown(one.get(name)) for one in values), difference(values[-1].get(name), values[0].get(name))] for name in names
    ]
    if not rows:
        return note("No run has a result yet.")
    return table([*header, f"{header[-1]} − {header[1]}"], rows, "The last value of each metric")
