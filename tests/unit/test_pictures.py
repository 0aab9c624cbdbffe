"""Figures are pure functions of what an evaluation kept, and tell when there is nothing to draw."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_parts import render_parts

from pipelines.report.evaluation import FOLDER, SplitEvaluation, archive_name, pack, read_splits, unpack
from pipelines.report.figures.class_curves import calibration_error, class_curves, wilson
from pipelines.report.figures.svg_figures import SvgFigure, draw_figures
from pipelines.report.page_parts import MOST_BYTES, class_tables, slice_tables, split_pictures, worst_tables
from pipelines.report.run_data import ATTEMPTS, collect


def binary_evaluation(**tables: Any) -> SplitEvaluation:
    defaults = {
        "classes": {"class": ["a", "b"], "rows": [3, 2], "predicted": [2, 3], "correct": [2, 2]},
        "confusion": {"true": ["a", "a", "b"], "predicted": ["a", "b", "b"], "rows": [2, 1, 2]},
        "scores": {"class": ["b"] * 4, "logit": [-2.0, -1.0, 1.0, 2.0], "rows_of_class": [0, 0, 1, 1], "other_rows": [1, 1, 1, 0]},
        "calibration": {"rows": [2, 3], "confidence": [0.1, 0.8], "happened": [0.0, 2 / 3]},
        "worst": {"row": [7], "loss": [2.0], "true": ["a"], "predicted": ["b"], "probability": [0.9], "feature.pixels": [list(range(64))]},
        "slices": {"column": ["sex", "sex"], "value": ["F", "M"], "rows": [400, 800], "correct": [200.0, 760.0], "loss": [300.0, 80.0]},
    }
    return SplitEvaluation(
        "test",
        {"kind": "binary", "rows": 5, "classes": ["a", "b"], "shapes": {"feature.pixels": [8, 8]}, "metrics": {}},
        {**defaults, **tables},
    )


FORECAST = {"row": [3, 3, 3], "series": [0, 0, 0], "step": [0, 1, 2], "true": [1.0, 2.0, 3.0], "predicted": [None, 2.0, 2.0]}
QUANTILES = {**FORECAST, "low": [None, 1.0, 1.5], "high": [None, 3.0, 2.5]}
OTHERS: dict[str, dict[str, Any]] = {
    "quantity": {"sample": {"row": [0, 1, 2], "true": [1.0, 2.0, 3.0], "predicted": [1.5, 2.0, 2.0]}},
    "forecast": {
        "horizon": {"step": [1, 2], "absolute": [1.0, 1.0], "squared": [1.0, 2.0], "repeated": [3.0, 4.0]},
        "forecasts": FORECAST,
        "worst_forecasts": FORECAST,
    },
    "ranking": {"ranks": {"rank": [1, 4, 1001], "rows": [5, 3, 2]}},
    "windows": {"sample": {"row": [0, 1], "nats_per_token": [1.0, 2.0], "bits_per_byte": [1.0, 2.0]}},
}


def evaluation(kind: str, tables: dict[str, Any]) -> SplitEvaluation:
    return SplitEvaluation("test", {"kind": kind, "rows": 10, "ranks_counted": 1000, "items": 5000, "shapes": {}, "metrics": {}}, tables)


def test_the_area_below_an_roc_curve_is_the_share_of_pairs_in_the_right_order() -> None:
    (curve,) = class_curves(binary_evaluation().tables["scores"])
    assert curve.roc_area == pytest.approx(5.5 / 6), "of 6 pairs 5 are in order, and one is tied"
    assert curve.precision_area == pytest.approx((1 + 2 / 3) / 2)


def evaluation_in_bins(bins_per_logit: float) -> tuple[SplitEvaluation, float, float]:
    """Scores counted in bins, with the exact areas of the scores."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    random = np.random.default_rng(0)
    true = random.random(20_000) < 0.05
    logits = random.standard_normal(20_000) + true
    bins, number = np.unique(np.floor(logits * bins_per_logit), return_inverse=True)
    counts = [np.bincount(number, weights=chosen).astype(int).tolist() for chosen in (true, ~true)]
    scores = {"class": ["b"] * len(bins), "logit": bins.tolist(), "rows_of_class": counts[0], "other_rows": counts[1]}
    return binary_evaluation(scores=scores), float(roc_auc_score(true, logits)), float(average_precision_score(true, logits))


@pytest.mark.parametrize("bins_per_logit", [0.5, 2, 16, 1_000])
def test_areas_from_bins_lie_between_their_bounds_and_are_marked(bins_per_logit: float) -> None:
    split, roc, precision = evaluation_in_bins(bins_per_logit)
    (curve,) = class_curves(split.tables["scores"])
    for exact, area, bounds in ((roc, curve.roc_area, curve.roc_bounds), (precision, curve.precision_area, curve.precision_bounds)):
        assert bounds and bounds[0] <= exact <= bounds[1] and bounds[0] <= area <= bounds[1]
        assert bounds[1] - bounds[0] < 2 / bins_per_logit
    captions = [figure.caption for figure in draw_figures(split) if figure.name in ("roc", "precision_recall")]
    assert all("≈ 0." in caption and "from counts in bins; between 0." in caption for caption in captions), captions


def test_exact_areas_are_shown_as_they_are() -> None:
    split, roc, precision = evaluation_in_bins(1_000)
    exact = SplitEvaluation("test", {**split.summary, "areas": [{"class": "b", "roc": roc, "precision": precision}]}, split.tables)
    captions = {figure.name: figure.caption for figure in draw_figures(exact)}
    assert captions["roc"] == f"ROC: area {roc:.4f}."
    assert captions["precision_recall"] == f"Precision and recall: average precision {precision:.4f}."
    undefined = SplitEvaluation("test", {**split.summary, "areas": [{"class": "b", "roc": None, "precision": 1.0}]}, split.tables)
    assert not {figure.name: figure.svg for figure in draw_figures(undefined)}["roc"]


def test_calibration_and_intervals_of_known_numbers() -> None:
    assert calibration_error(binary_evaluation().tables["calibration"]) == pytest.approx((2 * 0.1 + 3 * (0.8 - 2 / 3)) / 5)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10)[0] == 0 and wilson(10, 10)[1] == pytest.approx(1)


@pytest.mark.parametrize(
    "split", [binary_evaluation(), *(evaluation(kind, tables) for kind, tables in OTHERS.items())], ids=lambda split: split.kind
)
def test_equal_data_give_equal_bytes(split: SplitEvaluation) -> None:
    first, second = draw_figures(split), draw_figures(split)
    assert first == second and len(first) >= 1
    assert all(figure.svg.startswith(b"<?xml") and b"<dc:date>" not in figure.svg for figure in first), [
        figure.caption for figure in first if not figure.svg
    ]
    assert all(len(figure.svg) < 300_000 for figure in first)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_split_without_rows_says_so(kind: str) -> None:
    assert all(not figure.svg and "could not be drawn" not in figure.caption for figure in draw_figures(evaluation(kind, {})))


def test_forecasts_of_quantiles_are_drawn_with_a_band() -> None:
    drawn = {
        name: draw_figures(evaluation("forecast", {**OTHERS["forecast"], "forecasts": table}))[1]
        for name, table in (("point", FORECAST), ("quantiles", QUANTILES))
    }
    assert "a band is between the outermost quantiles" in drawn["quantiles"].caption and "band" not in drawn["point"].caption
    shapes = {name: figure.svg.count(b'id="FillBetweenPolyCollection') for name, figure in drawn.items()}
    assert shapes == {"point": 0, "quantiles": 1}


def test_with_one_class_curves_are_undefined_and_the_rest_is_drawn() -> None:
    split = binary_evaluation(
        classes={"class": ["a", "b"], "rows": [5, 0], "predicted": [3, 2], "correct": [3, 0]},
        scores={"class": ["b", "b"], "logit": [-1.0, 1.0], "rows_of_class": [0, 0], "other_rows": [3, 2]},
    )
    figures = {figure.name: figure for figure in draw_figures(split)}
    assert "split test has only a" in figures["roc"].caption and not figures["roc"].svg and not figures["precision_recall"].svg
    assert figures["confusion"].svg and figures["calibration"].svg
    assert "split test has only a" in split_pictures([split])[0].reasons[0] and "no rows" in render_parts(*class_tables([split]))


def test_a_figure_that_a_page_has_no_room_for_says_so_and_the_others_are_shown() -> None:
    split, large = binary_evaluation(), b"<svg/>".ljust(MOST_BYTES)
    (pictures,) = split_pictures([split], {"test": [SvgFigure("roc", b"<svg/>", "ROC."), SvgFigure("confusion", large, "Confusion.")]})
    assert [figure.caption for figure in pictures.figures] == ["ROC."] and "Confusion. It is too large" in pictures.reasons[0]


def test_a_hostile_name_of_a_class_is_drawn_as_it_is() -> None:
    names = ["<script>$x_{", "$$\\frac\x00"]
    split = binary_evaluation(confusion={"true": [names[0]], "predicted": [names[1]], "rows": [3]})
    hostile = SplitEvaluation("test", {**split.summary, "classes": names}, split.tables)
    confusion = draw_figures(hostile)[0]
    assert b"&lt;script&gt;" in confusion.svg and b"<script" not in confusion.svg, confusion.caption


def test_a_slice_that_is_served_worse_is_marked_and_comes_first() -> None:
    html = render_parts(*slice_tables([binary_evaluation()]))
    assert html.index(">F<") < html.index(">M<") and "worse than the whole" in html


def test_of_quantities_too_and_a_value_without_a_finite_error_is_the_worst() -> None:
    sums = {"absolute": [200.0, 90.0, np.nan], "squared": [500.0, 95.0, np.nan], "error": [1.0, 0.0, np.nan]}
    slices = {"column": ["sex"] * 3, "value": ["F", "M", "?"], "rows": [100, 100, 1], **sums}
    html = render_parts(*slice_tables([evaluation("quantity", {"slices": slices})]))
    assert html.index(">?<") < html.index(">F<") < html.index(">M<") and "undefined" in html
    html = render_parts(*slice_tables([evaluation("quantity", {"slices": {name: values[:2] for name, values in slices.items()}})]))
    assert "mean absolute error of all rows 1.45" in html and html.index("worse than the whole") < html.index(">M<") < html.index(
        "better than the whole"
    )


def test_a_table_that_is_cut_says_so_and_a_task_s_own_sums_have_rows_at_least() -> None:
    values = [f"value {number}" for number in range(1_000)]
    sums = {"column": ["x"] * 1_000, "value": values, "rows": [1] * 1_000, "own": [2.0] * 1_000}
    html = render_parts(*slice_tables([evaluation("own", {"slices": sums})]))
    assert "60 of 1,000" in html and ">value 59<" in html and ">value 60<" not in html
    counts = {"class": values, "rows": [1] * 1_000, "predicted": [1] * 1_000, "correct": [1] * 1_000}
    html = render_parts(*class_tables([evaluation("classes", {"classes": counts})]))
    assert "60 of 1,000" in html and ">value 60<" not in html


def test_the_worst_rows_show_their_picture() -> None:
    assert "data:image/png;base64," in render_parts(*worst_tables([binary_evaluation()]))


@pytest.mark.parametrize("shape", [[8, 8], [1, 8, 8], [8, 8, 1], [3, 8, 8], [8, 8, 3]])
def test_an_image_may_have_its_channels_first_or_last(shape: list[int]) -> None:
    values = list(range(int(np.prod(shape))))
    split = binary_evaluation(worst={"row": [7], "loss": [2.0], "true": ["a"], "predicted": ["b"], "feature.pixels": [values]})
    figures = draw_figures(SplitEvaluation("test", {**split.summary, "shapes": {"feature.pixels": shape}}, split.tables))
    assert [figure.caption for figure in figures if not figure.svg] == [] and figures[-1].name == "worst_pictures"


def test_files_of_a_split_survive_a_round_trip(tmp_path: Path) -> None:
    split = binary_evaluation()
    content = pack(split.summary, split.tables)
    assert content == pack(split.summary, split.tables)
    unpack(content, tmp_path / FOLDER / "test")
    (read_back,) = read_splits(tmp_path / FOLDER)
    assert read_back == split
    with pytest.raises(OSError, match="damaged"):
        unpack(content[:100], tmp_path / "other")


def test_a_damaged_file_in_a_run_s_directory_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, page = tmp_path / "run", tmp_path / "page"
    for folder in (run, page):
        folder.mkdir()
    split = binary_evaluation()
    content = pack(split.summary, split.tables)
    (run / archive_name("test")).write_bytes(content)
    (run / archive_name("validation")).write_bytes(content[:100])
    (run / ATTEMPTS).write_bytes(b"torn")
    collect(str(run), page)
    assert read_splits(page / FOLDER) == [split] and "evaluation-validation.zip is left out of the page" in caplog.text
    collect(str(tmp_path / "removed"), page)
