"""What an evaluation keeps beside metrics: the same for any way in which the rows come, bounded, and right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.applications.forecasting.forecast_details import ForecastDetails
from pipelines.applications.forecasting.futures import Future, FutureQuantiles
from pipelines.applications.forecasting.settings import ForecastingSettings
from pipelines.applications.language.settings import LanguageSettings
from pipelines.applications.language.task import WindowDetails
from pipelines.applications.recommendation.next_item import RankingDetails
from pipelines.applications.recommendation.settings import NextItemSettings
from pipelines.config import TaskSettings
from pipelines.config.tasks.task import TabularSettings
from pipelines.data.versions.schema import FIRST, ROW_NUMBERS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.details import ClassDetails, Details, EvaluationData, QuantityDetails
from pipelines.tasks.details.base import SHOWN_BYTES
from pipelines.tasks.details.parts import MOST_SCORES, Scores, SelectedRows, sampling_keys
from pipelines.tasks.supervised import target_kind

X = TensorColumn(name="x", dtype="float32")
SEX = TensorColumn(name="sex", dtype="int32", cardinality=3, role="carried")
RICH = TensorColumn(name="rich", dtype="uint8", cardinality=2, role="target")
BINARY = Data((X, RICH), ("poor", "rich"), carried=(SEX,), names=lambda name: ["other", "Female", "Male"])
PRICE = Data((X, TensorColumn(name="price", dtype="float32", role="target")), decode=lambda values: values * 100)


SLICED = TabularSettings(slices=("sex",))


def binary(settings: TaskSettings = SLICED, data: Data = BINARY) -> ClassDetails:
    return ClassDetails(settings, data, target_kind(data))


def batch(count: int, first: int = 0, **columns: Any) -> Batch:
    rows = torch.arange(first, first + count)
    return {ROW_NUMBERS: rows, "x": rows.float(), **{name: torch.as_tensor(values) for name, values in columns.items()}}


def add_batches(details: Details, *parts: tuple[Tensor, Batch]) -> Details:
    for output, rows in parts:
        details.update(output, rows)
    return details


def test_a_sample_and_the_worst_rows_do_not_depend_on_the_order_of_rows_nor_on_who_has_them() -> None:
    rows, losses = np.arange(10_000), np.random.default_rng(0).integers(0, 50, 10_000).astype(float)
    for keys in (sampling_keys(rows), -losses):
        expected = np.lexsort((rows, keys))[:100]
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(10_000)
            selected = [SelectedRows(100) for _ in range(4)]
            for number, chosen in enumerate(np.array_split(order, 40)):
                selected[number % 4].offer(keys[chosen], rows[chosen], lambda places, of=chosen: {"row": of[places]})
            for other in selected[1:]:
                selected[0].merge(other)
            assert selected[0].rows.tolist() == expected.tolist() == selected[0].columns["row"].tolist()


def test_a_sample_is_uniform() -> None:
    counts = np.bincount(np.sort(np.argsort(sampling_keys(np.arange(100_000)))[:10_000]) // 10_000, minlength=10)
    assert abs(counts - 1_000).max() < 120


def test_of_two_classes_everything_is_counted_once() -> None:
    output, rich, sex = torch.tensor([[2.0], [-1.0], [3.0], [-4.0], [0.5]]), [1, 1, 0, 0, 1], [1, 1, 2, 2, 2]
    all_details = add_batches(binary(), (output, batch(5, rich=rich, sex=sex)))
    split = add_batches(binary(), (output[:2], batch(2, rich=rich[:2], sex=sex[:2])))
    split.merge(add_batches(binary(), (output[2:], batch(3, 2, rich=rich[2:], sex=sex[2:]))).parts)
    evaluation, evaluation_of_parts = (details.result("test", {"auc": 0.5}) for details in (all_details, split))
    assert evaluation.summary == evaluation_of_parts.summary
    pairs = {"true": ["poor", "poor", "rich", "rich"], "predicted": ["poor", "rich"] * 2, "rows": [1, 1, 1, 2]}
    assert evaluation.tables["confusion"] == pairs
    for name, table in evaluation.tables.items():
        for column, values in table.items():
            merged = evaluation_of_parts.tables[name][column]
            assert values == (pytest.approx(merged) if isinstance(values[0], float) else merged), (name, column)
    slices = evaluation.tables["slices"]
    assert (slices["value"], slices["rows"], slices["correct"]) == (["Female", "Male"], [2, 3], [1.0, 2.0])
    worst = evaluation.tables["worst"]
    assert worst["row"][0] == 2 and worst["true"][0] == "poor" and worst["feature.x"][0] == 2.0
    assert sum(evaluation.tables["scores"]["rows_of_class"]) == 3 and sum(evaluation.tables["calibration"]["rows"]) == 5


def close_scores(rows: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a rare class that lie so close together that few bins hold them all, some of them tied, and the true classes."""
    random = np.random.default_rng(5)
    rich = random.random(rows) < 0.05
    logits = np.round(-3 + 0.05 * random.standard_normal(rows) + 0.04 * rich, 4)
    return logits.astype(np.float32)[:, None], rich.astype(np.uint8)


def score_rows(*sizes: int, limit: int = MOST_SCORES) -> EvaluationData:
    """The details of `close_scores` in parts of these sizes, which are merged."""
    logits, rich = close_scores(sum(sizes))
    parts, first = [], 0
    for size in sizes:
        part = binary(TabularSettings())
        part.scores = Scores(limit)
        rows = slice(first, first + size)
        parts.append(add_batches(part, (torch.from_numpy(logits[rows]), batch(size, first, rich=rich[rows]))))
        first += size
    merged = binary(TabularSettings())
    merged.scores = Scores(limit)
    for part in parts:
        merged.merge(part.parts)
    return merged.result("test", {})


def test_areas_are_those_of_scikit_learn_however_close_scores_are_and_whoever_has_them() -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    logits, rich = close_scores()
    evaluation, evaluation_of_parts = score_rows(3_000), score_rows(1_000, 7, 1_993)
    (areas,) = evaluation.summary["areas"]
    assert areas["roc"] == pytest.approx(roc_auc_score(rich, logits[:, 0]), abs=1e-12)
    assert areas["precision"] == pytest.approx(average_precision_score(rich, logits[:, 0]), abs=1e-12)
    assert (evaluation.summary["areas"], evaluation.tables["scores"]) == (
        evaluation_of_parts.summary["areas"],
        evaluation_of_parts.tables["scores"],
    )
    metrics = target_kind(BINARY).metrics()
    target_kind(BINARY).update(metrics, torch.from_numpy(logits).double(), torch.from_numpy(rich))
    assert areas["roc"] == pytest.approx(float(metrics["auc"].compute()), abs=1e-6), "the page says what the metric says"
    assert sum(evaluation.tables["scores"]["rows_of_class"]) == rich.sum() and len(evaluation.tables["scores"]["logit"]) <= 500
    assert evaluation.tables["scores"]["logit"] == sorted(evaluation.tables["scores"]["logit"], reverse=True)


def test_of_several_classes_each_area_is_that_of_the_class_against_the_rest() -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    column = TensorColumn(name="kind", dtype="int32", cardinality=4, role="target")
    data = Data((X, column), ("a", "b", "c", "never"))
    output, kind = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 3
    evaluation = add_batches(binary(TabularSettings(), data), (output, batch(500, kind=kind)))
    scores = output.double().softmax(1).numpy()
    for number, areas in enumerate(evaluation.result("test", {}).summary["areas"][:3]):
        assert areas["roc"] == pytest.approx(roc_auc_score(kind == number, scores[:, number]), abs=1e-12)
        assert areas["precision"] == pytest.approx(average_precision_score(kind == number, scores[:, number]), abs=1e-12)
    assert evaluation.result("test", {}).summary["areas"][3] == {"class": "never", "roc": None, "precision": None}


def test_a_probability_of_one_is_a_score_like_any_other() -> None:
    column = TensorColumn(name="kind", dtype="int32", cardinality=3, role="target")
    data, kind = Data((X, column), ("a", "b", "c")), torch.arange(30) % 3
    output = torch.nn.functional.one_hot(kind, 3) * 1e30
    evaluation = add_batches(binary(TabularSettings(), data), (output, batch(30, kind=kind))).result("test", {})
    assert [areas["roc"] for areas in evaluation.summary["areas"]] == [1.0, 1.0, 1.0]
    assert sum(evaluation.tables["scores"]["rows_of_class"]) == 30


def test_with_too_many_scores_to_keep_they_are_counted_in_bins_whoever_has_them() -> None:
    evaluation, evaluation_of_parts = score_rows(3_000, limit=2_999), score_rows(1_500, 1_500, limit=2_999)
    assert "areas" not in evaluation.summary and "areas" not in evaluation_of_parts.summary
    assert evaluation.tables["scores"] == evaluation_of_parts.tables["scores"] and "areas" in score_rows(1_500, 1_500, limit=3_000).summary
    few, many = binary(TabularSettings()), binary(TabularSettings())
    few.expect(MOST_SCORES)
    many.expect(MOST_SCORES + 1)
    assert few.scores.is_complete and not many.scores.is_complete


def test_many_classes_are_counted_without_pairs() -> None:
    column = TensorColumn(name="kind", dtype="int32", cardinality=300, role="target")
    data = Data((X, column), tuple(map(str, range(300))))
    output = torch.eye(300)[:200] * 5
    evaluation = add_batches(binary(TabularSettings(), data), (output, batch(200, kind=torch.arange(200) // 2))).result("test", {})
    assert evaluation.tables.keys() == {"classes", "calibration", "worst", "outcomes"}
    assert sum(evaluation.tables["classes"]["rows"]) == 200 and evaluation.tables["classes"]["correct"][0] == 1


@pytest.mark.parametrize("settings", [{"class_weights": "balanced"}, {"class_weights": [1, 2]}, {"sample_weight": "weight"}])
def test_a_loss_with_weights_has_no_outcomes(settings: dict[str, Any]) -> None:
    rows = torch.zeros(4, 1), batch(4, rich=torch.arange(4) % 2, sex=torch.ones(4))
    outcomes = add_batches(binary(TabularSettings(**settings)), rows).result("test", {}).tables["outcomes"]
    assert "accuracy" in outcomes and "loss" not in outcomes, "the mean of unweighted losses is another figure"
    assert "loss" in add_batches(binary(TabularSettings()), rows).result("test", {}).tables["outcomes"]


def test_a_quantity_is_sampled_in_the_units_of_the_query() -> None:
    details = QuantityDetails(TabularSettings(), PRICE, target_kind(PRICE))
    evaluation = add_batches(details, (torch.tensor([[1.0], [2.0]]), batch(2, price=[1.5, 2.0]))).result("test", {})
    assert sorted(zip(evaluation.tables["sample"]["true"], evaluation.tables["sample"]["predicted"], strict=True)) == [
        (150.0, 100.0),
        (200.0, 200.0),
    ]
    assert evaluation.tables["worst"]["row"] == [0, 1]


def test_forecasts_are_kept_with_history_and_truth() -> None:
    history = TensorColumn(name="past", dtype="float32", shape=(6, 2))
    columns = history, TensorColumn(name="future", dtype="float32", shape=(3, 2), role="target")
    past = torch.arange(7 * 6 * 2).float().view(7, 6, 2)
    future = past[:, -1:] + torch.ones(7, 3, 2)
    rows = {ROW_NUMBERS: torch.arange(7), "past": past, "future": future}
    evaluation = add_batches(
        ForecastDetails(ForecastingSettings(), Data(columns), Future(Data(columns)), "past"), (future + 2, rows)
    ).result("test", {})
    assert evaluation.tables["horizon"] == {"step": [1, 2, 3], "absolute": [2.0] * 3, "squared": [4.0] * 3, "repeated": [1.0] * 3}
    forecasts = evaluation.tables["forecasts"]
    assert len(set(forecasts["row"])) == 4 and len(forecasts["row"]) == 4 * 2 * 9
    assert [value for value in forecasts["predicted"][:9] if value is not None] == [true + 2 for true in forecasts["true"][6:9]]


def test_forecasts_of_quantiles_are_kept_with_their_bounds() -> None:
    history = TensorColumn(name="past", dtype="float32", shape=(6, 2))
    data = Data((history, TensorColumn(name="future", dtype="float32", shape=(3, 2), role="target")), decode=lambda values: 10 * values)
    rows = {ROW_NUMBERS: torch.arange(5), "past": torch.ones(5, 6, 2), "future": torch.ones(5, 3, 2)}
    output = torch.stack([torch.full((5, 3, 2), value) for value in (4.0, 0.0, 2.0)], 1)
    details = ForecastDetails(ForecastingSettings(loss="quantiles"), data, FutureQuantiles(data, (0.1, 0.5, 0.9)), "past")
    tables = add_batches(details, (output, rows)).result("test", {}).tables
    forecasts = tables["forecasts"]
    assert [forecasts[name][6] for name in ("low", "predicted", "high")] == [0.0, 20.0, 40.0] and forecasts["low"][0] is None
    assert tables["horizon"]["squared"] == [1.0] * 3 and tables["outcomes"]["mse"] == [1.0] * 5
    assert tables["outcomes"]["pinball"] == pytest.approx([(0.1 + 0.5 + 0.3) / 3] * 5)


def test_ranks_are_among_all_items() -> None:
    column = {"dtype": "int32", "shape": (2,), "cardinality": FIRST + 4}
    columns = TensorColumn(name="before", **column), TensorColumn(name="after", role="target", **column)
    names = np.array([None, None, "a", "b", "c", "d"], dtype=object)
    data = Data(columns, raw=lambda name, values: names[values])
    scores = torch.tensor([[0, 0, 4.0, 3, 2, 1], [0, 0, 4.0, 3, 2, 1], [9, 9, 4.0, 3, 2, 1]])
    rows = {ROW_NUMBERS: torch.arange(3), "before": torch.full((3, 2), 3), "after": torch.tensor([[0, 2], [0, 5], [0, 1]])}
    evaluation = add_batches(RankingDetails(NextItemSettings(), data, lambda output, batch: {}), (scores, rows)).result("test", {})
    assert evaluation.tables["ranks"] == {"rank": [1, 4, 5], "rows": [1, 1, 1]}, "an item outside the vocabulary ranks last"
    assert evaluation.tables["worst"]["true"] == [None, "d", "a"] and set(evaluation.tables["worst"]["feature.before"]) == {"b b"}


def test_windows_are_shown_as_text() -> None:
    column = TensorColumn(name="text", dtype="uint8", shape=(3,), cardinality=3)
    rows = {ROW_NUMBERS: torch.arange(2), "text": torch.tensor([[0, 1, 2], [1, 1, 2]], dtype=torch.uint8)}
    details = WindowDetails(LanguageSettings(), Data((column,), tokens=(b"", b"ab", b"c")))
    evaluation = add_batches(details, (torch.tensor([[2.0, 2.0, 3.0], [9.0, 3.0, 5.0]]), rows)).result("validation", {})
    assert evaluation.tables["worst"]["feature.text"] == ["ababc", "\n\nabc"] and evaluation.tables["worst"]["loss"] == [3.0, 1.0]


def test_a_large_image_is_thinned() -> None:
    image = TensorColumn(name="pixels", dtype="float32", shape=(224, 224, 3))
    data = Data((image, RICH), ("poor", "rich"))
    rows = {ROW_NUMBERS: torch.arange(2), "pixels": torch.rand(2, 224, 224, 3), "rich": torch.tensor([0, 1])}
    evaluation = add_batches(binary(TabularSettings(), data), (torch.zeros(2, 1), rows)).result("test", {})
    assert evaluation.summary["shapes"] == {"feature.pixels": [28, 28, 3]}
    assert len(evaluation.tables["worst"]["feature.pixels"][0]) * 4 <= SHOWN_BYTES


def test_a_row_without_a_finite_loss_is_the_worst() -> None:
    evaluation = add_batches(binary(TabularSettings()), (torch.tensor([[9.0], [np.nan]]), batch(2, rich=[0, 0]))).result("test", {})
    assert evaluation.tables["worst"]["row"] == [1, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("age", "age, which is no column"),
        ("x", "x, which is a number"),
        ("many", "many, which has 5,000 values"),
        ("pixels", r"pixels, which has shape \(8, 8\)"),
    ],
)
def test_a_slice_that_cannot_be_one_is_refused(name: str, message: str) -> None:
    more = TensorColumn(name="many", dtype="int32", cardinality=5_000), TensorColumn(name="pixels", dtype="uint8", shape=(8, 8))
    with pytest.raises(ConfigError, match=rf"task.slices has {message}"):
        binary(TabularSettings(slices=(name,)), replace(BINARY, columns=(*BINARY.columns, *more)))
