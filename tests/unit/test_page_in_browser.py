"""Pages in a real browser, which shows them at the width of a telephone and of a desk."""

from pathlib import Path

from chromium import GOOD, seen
from markupsafe import Markup
from page_parts import render_text

from pipelines.report.charts import Mark, line_chart
from pipelines.report.rendering import Code, Figure, PageTable

LONG = "a_name_without_any_space_" * 12
EVERYTHING = """{% extends "page.html" %}
{% block summary %}{{ tiles(long_tiles) }} {{ note(title, "warning") }}{% endblock %}
{% block sections %}
{{ facts(digests) }} {{ facts(sources) }} {{ show(records) }} {{ tiles(short_tiles) }}
{% call section("Rows") %}{{ show(wide) }} {{ facts([(title, title)]) }} {{ grid(charts) }}{% endcall %}
{% call folded(title) %}<pre>{{ title }}</pre>{% endcall %}
{% endblock %}
"""
PLAIN = """{% extends "page.html" %}
{% block sections %}{{ content }}{% endblock %}
"""


def test_a_page_of_everything_fits_both_widths_and_asks_for_nothing(tmp_path: Path) -> None:
    chart = line_chart({f"run {run}": [(x, x * run) for x in range(50)] for run in range(7)}, "step", LONG, [Mark(20, LONG)])
    page = render_text(
        EVERYTHING,
        title=LONG,
        lead=LONG,
        long_tiles=[(LONG, 0.5)] * 6,
        digests=[("digest of its rows", Code("0123456789abcdef" * 4)), ("versions that made the rows", "python 3.11, pyspark 4.1")],
        sources=[("sources", PageTable(["table", "files", "digest"], [["customers_of_last_year", 12, Code("0123456789abcdef")]]))],
        records=PageTable(["reason", "record"], [["plausible age", Code('{"marital_status": "Married-spouse-absent", "age": 250}')]]),
        short_tiles=[("validation/accuracy", 0.5), ("from begin to end", "17 min 3 s"), ("worker hours", 0.0123)] * 2,
        wide=PageTable([f"column {number}" for number in range(30)], [[f"value {number}" for number in range(30)]], LONG),
        charts=[Figure(chart, LONG)] * 5,
    )
    (tmp_path / "page.html").write_text(page)
    assert seen(tmp_path / "page.html") == GOOD


def test_words_that_break_inside_are_found_out(tmp_path: Path) -> None:
    narrow = Markup('<div style="width: 40px; overflow-wrap: anywhere">thermodynamics</div>')
    (tmp_path / "page.html").write_text(render_text(PLAIN, title="Narrow", lead="", content=narrow))
    assert seen(tmp_path / "page.html").torn == ["thermodynamics"]


def test_a_page_that_would_fetch_something_or_is_too_wide_is_found_out(tmp_path: Path) -> None:
    fetching = Markup('<img src="http://127.0.0.1:9/picture.png"><div style="width: 900px">wide</div>')
    (tmp_path / "page.html").write_text(render_text(PLAIN, title="Fetching", lead="", content=fetching))
    page = seen(tmp_path / "page.html")
    assert any("Content Security Policy" in error for error in page.errors), page.errors
    assert page.overflow[400] > 0 == page.overflow[1600]
