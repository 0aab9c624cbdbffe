"""HTML and inline charts: what is text stays text, and what is not finite is left out."""

from math import inf, isfinite, nan
from xml.etree import ElementTree

import pytest

from pipelines.report.charts import WIDTH, Axis, Mark, lines
from pipelines.report.page import element, facts, figure, folded, grid, image, note, page, section, table, text, tiles

HOSTILE = "<script>alert('x')</script> & \"quotes\" \x00 \u200b"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1437, "1,437"), (0.98765, "0.9877"), (1e-9, "1e−09"), (-2.5, "−2.5"), (nan, "undefined"), (inf, "∞"), (None, "–"), (True, "yes")],
)
def test_a_value_is_shown_with_the_digits_that_are_read(value: object, shown: str) -> None:
    assert text(value) == shown


def test_no_text_becomes_markup() -> None:
    parts = [
        section(HOSTILE, [table([HOSTILE], [[HOSTILE]], HOSTILE), facts([(HOSTILE, HOSTILE)]), tiles([(HOSTILE, HOSTILE)]), note(HOSTILE)]),
        grid([figure(lines({HOSTILE: [(0, 1)], "b": [(1, 2)]}, HOSTILE, HOSTILE, [Mark(0, HOSTILE)]), HOSTILE)]),
        folded(HOSTILE, image(b"", HOSTILE)),
    ]
    made = page(HOSTILE, parts, HOSTILE)
    assert "<script" not in made and "\x00" not in made and "&amp;" in made
    assert "http" not in made.replace("http-equiv", ""), "a page fetches nothing"


def test_a_column_of_numbers_is_aligned_to_the_right() -> None:
    made = table(["split", "rows"], [["train", 5], ["test", None]])
    assert made.count("class='number'") == 3 and "<td>train</td>" in made
    bold = table(["metric", "A"], [["auc", element("b", -0.5)], ["loss", 1.25], ["area", "undefined: one class"]])
    assert bold.count("class='number'") == 4, "the best value in bold is a number too"


def test_curves_leave_out_what_is_not_finite() -> None:
    made = lines({"loss": [(0, 1.0), (1, nan), (2, inf), (3, 0.5)]})
    (path,) = [found.get("points", "") for found in ElementTree.fromstring(made).iter("polyline")]
    assert len(path.split()) == 2
    assert "no points yet" in lines({"loss": [(0, nan)]})
    assert "absent" not in lines({"loss": [(0, 1.0)], "absent": [(0, nan)], "other": [(0, 2.0)]}, y_label="of two")


def test_of_a_long_curve_the_last_point_is_drawn() -> None:
    made = lines({"loss": [(step, 1 / (step + 1)) for step in range(100_000)]})
    assert len(made) < 20_000 and f" {WIDTH - 12}.0," in made


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [0.0, 5e-324], [0.0, inf], [1.7e308]])
def test_numbers_at_the_limits_of_a_float_are_drawn(values: list[float]) -> None:
    assert "nan" not in lines({"loss": list(enumerate(values))}) and all(map(isfinite, Axis.over(values).ticks))


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-12, 1e-12], [1e300, -1e300], [3, 1_234_567], [0.1, 0.30000000000000004]])
def test_an_axis_holds_its_values_between_few_round_ticks(values: list[float]) -> None:
    axis = Axis.over(values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(axis.ticks) <= 7
