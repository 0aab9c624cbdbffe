"""Pages in a real browser, which shows them at the width of a telephone and of a desk."""

from pathlib import Path

from chromium import GOOD, seen

from pipelines.report.charts import Mark, lines
from pipelines.report.page import Html, contents, element, facts, figure, folded, grid, note, page, section, table, tiles

LONG = "a_name_without_any_space_" * 12


def test_a_page_of_everything_fits_both_widths_and_asks_for_nothing(tmp_path: Path) -> None:
    wide = [[f"value {number}" for number in range(30)]]
    charts = [
        figure(lines({f"run {run}": [(x, x * run) for x in range(50)] for run in range(7)}, "step", LONG, [Mark(20, LONG)]), LONG)
    ] * 5
    parts = [
        *(tiles([(LONG, 0.5)] * 6), contents(["Rows"]), note(LONG, kind="warning")),
        facts(
            [("digest of its rows", element("code", "0123456789abcdef" * 4)), ("versions that made the rows", "python 3.11, pyspark 4.1")]
        ),
        facts([("sources", table(["table", "files", "digest"], [["customers_of_last_year", 12, element("code", "0123456789abcdef")]]))]),
        table(["reason", "record"], [["plausible age", element("code", '{"marital_status": "Married-spouse-absent", "age": 250}')]]),
        tiles([("validation/accuracy", 0.5), ("from begin to end", "17 min 3 s"), ("worker hours", 0.0123)] * 2),
        section("Rows", [table([f"column {number}" for number in range(30)], wide, LONG), facts([(LONG, LONG)]), grid(charts)]),
        folded(LONG, element("pre", LONG)),
    ]
    (tmp_path / "page.html").write_text(page(LONG, parts, LONG))
    assert seen(tmp_path / "page.html") == GOOD


def test_words_that_break_inside_are_found_out(tmp_path: Path) -> None:
    narrow = Html('<div style="width: 40px; overflow-wrap: anywhere">thermodynamics</div>')
    (tmp_path / "page.html").write_text(page("Narrow", [narrow]))
    assert seen(tmp_path / "page.html").torn == ["thermodynamics"]


def test_a_page_that_would_fetch_something_or_is_too_wide_is_found_out(tmp_path: Path) -> None:
    fetching = Html('<img src="http://127.0.0.1:9/picture.png"><div style="width: 900px">wide</div>')
    (tmp_path / "page.html").write_text(page("Fetching", [fetching]))
    found = seen(tmp_path / "page.html")
    assert any("Content Security Policy" in error for error in found.errors), found.errors
    assert found.overflow[400] > 0 == found.overflow[1600]
