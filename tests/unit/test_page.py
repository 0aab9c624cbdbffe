"""Pages and charts: what is text stays text, and what is not finite is left out."""

import re
from math import inf, isfinite, nan
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError
from page_parts import render_parts, render_text

from pipelines.report.charts import Axis, Mark, line_chart
from pipelines.report.rendering import Best, Code, Figure, Note, PageTable, Picture, readable

ROOT = Path(__file__).parents[2]
HOSTILE = "<script>alert('x')</script> & \"quotes\" \x00 \u200b"
EVERYTHING = """{% extends "page.html" %}
{% block summary %}{{ tiles([(title, title)]) }}{{ note(title, "warning") }}{% endblock %}
{% block sections %}
{% call section(title) %}
{{ table([title], [[title]], title) }} {{ facts([(title, title)]) }}
{% for part in parts %}{{ show(part) }}{% endfor %}
{{ grid(figures) }} {{ distribution(bins, title) }} {{ distribution(names, title) }}
{% call folded(title) %}<pre>{{ title }}</pre>{% endcall %}
{% endcall %}
{% endblock %}
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [(1437, "1,437"), (0.98765, "0.9877"), (1e-9, "1e−09"), (-2.5, "−2.5"), (nan, "undefined"), (inf, "∞"), (None, "–"), (True, "yes")],
)
def test_a_value_is_shown_with_the_digits_that_are_read(value: object, text: str) -> None:
    assert readable(value) == text


def test_no_text_becomes_markup() -> None:
    chart = line_chart({HOSTILE: [(0, 1)], "b": [(1, 2)]}, HOSTILE, HOSTILE, [Mark(0, HOSTILE)])
    shares = {"train": [0.5], "test": [1.0]}
    bins = {"kind": "bins", "ends": [HOSTILE, HOSTILE], "unit": HOSTILE, "shares": shares, "beyond": {}, "sampled": {}}
    names = {"kind": "names", "names": [HOSTILE], "shares": shares, "sampled": {}}
    page = render_text(
        EVERYTHING,
        title=HOSTILE,
        lead=HOSTILE,
        parts=[Code(HOSTILE), Best(HOSTILE), Note(HOSTILE), Picture(b"", HOSTILE), PageTable([HOSTILE], [[Code(HOSTILE)]], HOSTILE)],
        figures=[Figure(chart, HOSTILE, HOSTILE)],
        bins=bins,
        names=names,
    )
    assert "<script" not in page and "\x00" not in page and page.count("&lt;script&gt;") > 25
    assert "http" not in page.replace("http-equiv", ""), "a page fetches nothing"


def test_templates_escape_everything_and_a_name_that_they_do_not_get_is_an_error() -> None:
    for template in ROOT.glob("pipelines/**/templates/*"):
        assert not re.search(r"\|\s*safe|autoescape", template.read_text()), template
    with pytest.raises(UndefinedError, match="unknown"):
        render_text("{{ unknown }}")


def test_a_column_of_numbers_is_aligned_to_the_right() -> None:
    table = render_parts(PageTable(["split", "rows"], [["train", 5], ["test", None]]))
    assert table.count('class="number"') == 3 and "<td>train</td>" in table
    bold = render_parts(PageTable(["metric", "A"], [["auc", Best(-0.5)], ["loss", 1.25], ["area", "undefined: one class"]]))
    assert bold.count('class="number"') == 4, "the best value in bold is a number too"


def test_curves_leave_out_what_is_not_finite() -> None:
    chart = render_parts(line_chart({"loss": [(0, 1.0), (1, nan), (2, inf), (3, 0.5)]}))
    (path,) = [line.get("points", "") for line in ElementTree.fromstring(chart.strip()).iter("polyline")]
    assert len(path.split()) == 2
    assert "no points yet" in render_parts(line_chart({"loss": [(0, nan)]}))
    assert "absent" not in render_parts(line_chart({"loss": [(0, 1.0)], "absent": [(0, nan)], "other": [(0, 2.0)]}, y_label="of two"))


def test_of_a_long_curve_the_last_point_is_drawn() -> None:
    chart = render_parts(line_chart({"loss": [(step, 1 / (step + 1)) for step in range(100_000)]}))
    assert len(chart) < 20_000 and " 328," in chart


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [0.0, 5e-324], [0.0, inf], [1.7e308]])
def test_numbers_at_the_limits_of_a_float_are_drawn(values: list[float]) -> None:
    assert "nan" not in render_parts(line_chart({"loss": list(enumerate(values))})) and all(map(isfinite, Axis.over(values).ticks))


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-12, 1e-12], [1e300, -1e300], [3, 1_234_567], [0.1, 0.30000000000000004]])
def test_an_axis_holds_its_values_between_few_round_ticks(values: list[float]) -> None:
    axis = Axis.over(values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(axis.ticks) <= 7
