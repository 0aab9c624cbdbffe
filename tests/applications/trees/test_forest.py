"""Trees as a torch module, compared with LightGBM's own predictions; and the grid on which sums are exact."""

from collections.abc import Mapping
from math import frexp
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipelines.applications.trees.boosting import PredictionCache, best_bias, gradients, sum_exactly, to_grids
from pipelines.applications.trees.forest import PAIRS_AT_ONCE, Forest
from pipelines.applications.trees.lightgbm_network import read_tree
from pipelines.applications.trees.settings import TreesSettings
from pipelines.applications.trees.task import Trees, contributions
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Data

ROWS, VALUES = 3_000, 12
COLUMNS = (
    TensorColumn(name="a", dtype="float32"),
    TensorColumn(name="wide", dtype="float32", shape=(2,)),
    TensorColumn(name="category", dtype="int32", cardinality=VALUES),
)
RANDOM = np.random.default_rng(5)
BATCH = {
    "a": torch.from_numpy(np.where(RANDOM.random(ROWS) < 0.2, np.nan, RANDOM.standard_normal(ROWS)).astype(np.float32)),
    "wide": torch.from_numpy(RANDOM.standard_normal((ROWS, 2)).astype(np.float32)),
    "category": torch.from_numpy(RANDOM.integers(0, VALUES, ROWS).astype(np.int32)),
}


def grow(outputs: int, rounds: int = 20) -> tuple[Forest, Any, np.ndarray]:
    """A forest, and the booster of LightGBM that it was read from, with the inputs of both."""
    forest = Forest(COLUMNS, outputs, nodes=2 * 15 - 1, values=VALUES)
    inputs = forest.inputs(BATCH).numpy()
    signal = np.nan_to_num(inputs[:, 0]) + inputs[:, 1] * (inputs[:, 3] % 3 == 1) + np.isnan(inputs[:, 0])
    label = np.digitize(signal, [0.3] if outputs == 1 else [-0.2, 0.8]).astype(float)
    # One thread: LightGBM's threads spin, which takes minutes where others use the cores.
    parameters = {"objective": "binary" if outputs == 1 else "multiclass", "num_class": outputs, "num_leaves": 15, "num_threads": 1}
    booster = lightgbm.train(
        {**parameters, "verbosity": -1, "boost_from_average": False},
        lightgbm.Dataset(inputs, label, categorical_feature=[3]),
        num_boost_round=rounds,
    )
    forest.reserve(rounds * outputs)
    forest.add([read_tree(tree["tree_structure"], VALUES) for tree in booster.dump_model()["tree_info"]])
    return forest, booster, inputs


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_forest_predicts_as_lightgbm_to_the_last_bit(outputs: int) -> None:
    forest, booster, inputs = grow(outputs)
    expected = booster.predict(inputs, raw_score=True).reshape(ROWS, outputs)
    assert np.array_equal(forest.scores(forest.inputs(BATCH)).numpy(), expected)
    assert np.allclose(forest(BATCH).numpy(), expected, rtol=1e-6, atol=1e-6)
    assert forest.is_set.any(), "some decisions are on categories"
    assert forest.missing_left.any(), "and send NaN to the left"


@pytest.mark.parametrize("rows", [0, 1, PAIRS_AT_ONCE // 60, 2 * PAIRS_AT_ONCE // 60 + 1])
def test_rows_that_stop_at_their_leaves_have_the_outputs_of_the_exported_graph(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, *_ = grow(3)
    batch = {name: values[:rows].clone() for name, values in BATCH.items()}
    batch["category"] = batch["category"].float()
    batch["category"][:1], batch["category"][1:2], batch["wide"][2:3] = torch.nan, VALUES + 3, torch.inf
    outputs = forest(batch)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert outputs.shape == (rows, 3) and torch.allclose(outputs, forest(batch), rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("outputs", [1, 3])
def test_rows_that_come_again_take_only_the_trees_since_and_have_the_same_bits(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grown, booster, _ = grow(outputs, rounds=150)
    trees = [read_tree(tree["tree_structure"], VALUES) for tree in booster.dump_model()["tree_info"]]
    forest = Forest(COLUMNS, outputs, nodes=2 * 15 - 1, values=VALUES)
    forest.reserve(len(trees))
    inputs = forest.inputs(BATCH)
    first, second = inputs[:200], inputs[200:300]
    batch = {name: values[:300] for name, values in BATCH.items()}
    cache = PredictionCache(forest, most_bytes=len(first) * outputs * 8)  # not of the second
    for rounds in (0, 10, 54, 30, 56):  # 0, 10, 64, 94, 150 in all
        forest.add(trees[forest.count : forest.count + rounds * outputs])
        assert torch.equal(torch.cat([cache.outputs(first), cache.outputs(second)]), forest(batch))
    assert torch.equal(forest(batch), grown(batch)), "all trees"
    computed: list[range] = []
    add_trees = forest.add_trees
    monkeypatch.setattr(forest, "add_trees", lambda total, rows, trees: computed.append(trees) or add_trees(total, rows, trees))
    cache.outputs(first)
    assert sum(map(len, computed)) == 22 * outputs, "two groups of 64 are known"
    forest.load_state_dict({name: values.roll(1, 0) if values.ndim > 1 else values for name, values in forest.state_dict().items()})
    cache.clear()
    assert torch.equal(cache.outputs(first), forest(batch)[:200])


@pytest.mark.parametrize("outputs", [1, 3])
def test_contributions_and_importance_are_lightgbms_own(outputs: int) -> None:
    forest, booster, inputs = grow(outputs)
    rows = inputs[:200]
    expected = booster.predict(rows, pred_contrib=True).reshape(len(rows), outputs, -1)[:, :, :-1]
    assert np.allclose(contributions(forest, rows), expected, rtol=0, atol=1e-12) and np.abs(expected).min(axis=(0, 1)).max() > 0
    importance = forest.importance(inputs.shape[1])
    assert importance["splits"].tolist() == booster.feature_importance("split").tolist()
    assert np.allclose(importance["gain"].numpy(), booster.feature_importance("gain"))


def test_contributions_add_up_to_the_output_also_of_trees_without_decisions() -> None:
    forest, _, inputs = grow(1, rounds=3)
    forest.reserve(4)
    assert not contributions(forest, inputs[:5]).any(), "a forest without trees"
    _, booster, _ = grow(1, rounds=3)
    trees = [read_tree(tree["tree_structure"], VALUES) for tree in booster.dump_model()["tree_info"]]
    forest.add([*trees, read_tree({"leaf_value": 0.0}, VALUES)])
    shares, outputs = contributions(forest, inputs).sum((1, 2)), forest.scores(forest.inputs(BATCH))[:, 0].numpy()
    assert np.ptp(outputs) > 0.1 and np.allclose(outputs - shares, (outputs - shares)[0], atol=1e-12), "but for the mean"


def test_an_explanation_is_of_raw_features() -> None:
    column = TensorColumn(name="y", dtype="float32", role="target")
    trees = task(column)
    encoders = {"a": FittedEncoder(feature={"encoder": "identity"}, inputs=("raw",), state={}, column=COLUMNS[0]),
                "wide": FittedEncoder(feature={"encoder": "fourier"}, inputs=("raw",), state={}, column=COLUMNS[1])}  # fmt: skip
    named = Trees(trees.settings, Data((*COLUMNS, column), encoders=encoders))
    forest, booster, inputs = grow(1)
    assert named.explain(forest, {name: values[:1] for name, values in BATCH.items()}).contributions.shape == (1, 2), "also of one row"
    tables = named.explain(forest, {name: values[:9] for name, values in BATCH.items()}).tables(list(range(10, 19)))
    gain = booster.feature_importance("gain")
    importance = dict(zip(tables["importance"]["feature"], tables["importance"]["gain"], strict=True))
    assert importance == {"raw": pytest.approx(gain[:3].sum()), "category": pytest.approx(gain[3])}
    shares = booster.predict(inputs[:9], pred_contrib=True)
    of_raw = [share for feature, share in zip(tables["contributions"]["feature"], tables["contributions"]["contribution"], strict=True)
              if feature == "raw"]  # fmt: skip
    assert np.allclose(of_raw, shares[:, :3].sum(1)) and tables["contributions"]["row"] == np.repeat(np.arange(10, 19), 2).tolist()


def test_values_on_a_threshold_go_as_in_lightgbm() -> None:
    forest, booster, _ = grow(1)
    thresholds = forest.threshold[(forest.feature == 0) & (forest.left_child != forest.right_child)].unique()
    near = [torch.nextafter(thresholds, torch.tensor(direction * np.inf)) for direction in (-1, 1)]
    values = torch.cat([thresholds, *near])
    batch = {"a": values, "wide": torch.zeros(len(values), 2), "category": torch.zeros(len(values), dtype=torch.int32)}
    assert np.array_equal(forest.scores(forest.inputs(batch))[:, 0].numpy(), booster.predict(forest.inputs(batch).numpy(), raw_score=True))


def test_weights_have_no_empty_trees_and_fill_a_forest_of_any_size() -> None:
    forest, _, _ = grow(1, rounds=4)
    roomy = Forest(COLUMNS, 1, nodes=29, values=VALUES)
    roomy.reserve(9)
    roomy.load_state_dict(forest.state_dict())
    assert torch.equal(roomy.scores(roomy.inputs(BATCH)), forest.scores(forest.inputs(BATCH)))
    grown = Forest(COLUMNS, 1, nodes=29, values=VALUES)
    grown.reserve(7)
    with torch.no_grad():
        grown.bias.fill_(0.5)
    grown.add([read_tree({"leaf_value": 0.0}, VALUES)])
    weights = grown.weights()
    assert weights["feature"].shape == (1, 29) and (grown(BATCH) == 0.5).all()
    inputs = grown.inputs({name: values[:3] for name, values in BATCH.items()})
    assert torch.equal(grown.scores(inputs), torch.full((3, 1), 0.5, dtype=torch.float64))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=200), st.randoms())
def test_p5_a_sum_on_the_grid_is_the_same_in_any_order(values: list[float], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    (on_grid,) = to_grids(torch.tensor(values, dtype=torch.float64))
    assert float(on_grid.float().double().sub(on_grid).abs().max()) == 0, "float32 holds it"
    assert (
        sum(on_grid.tolist())
        == sum(reversed(on_grid.tolist()))
        == float(sum_exactly(*to_grids(torch.tensor(shuffled, dtype=torch.float64))))
    )
    spacing = 2.0 ** (frexp(max(map(abs, values)))[1] - 23)
    assert on_grid.tolist() == [round(value / spacing) * spacing for value in values], "the nearest, of two the even one"


def task(column: TensorColumn, settings: Mapping[str, Any] | None = None, encoder: str = "identity", **data: Any) -> Trees:
    feature = {"encoder": encoder, "column": "y"}
    encoders = {"y": FittedEncoder(feature=feature, inputs=("y",), state={"dtype": column.dtype, "impute": None}, column=column)}
    return Trees(TreesSettings.model_validate({"kind": "trees", **(settings or {})}), Data((*COLUMNS, column), encoders=encoders, **data))


def loss_at(trees: Trees, scores: Tensor, batch: dict[str, Tensor]) -> Tensor:
    losses, weights = trees.row_losses(scores, batch)
    return losses if weights is None else losses * weights


@pytest.mark.parametrize(
    ("trees", "target", "outputs"),
    [
        (task(TensorColumn(name="y", dtype="uint8", role="target", cardinality=2), {"class_weights": (1.0, 3.0)}), [0, 1, 1, 0], 1),
        (task(TensorColumn(name="y", dtype="int32", role="target", cardinality=3)), [0, 1, 2, 1], 3),
        (task(TensorColumn(name="y", dtype="float32", role="target")), [0.5, -1.0, 2.0, 0.0], 1),
    ],
    ids=["two classes with weights", "three classes", "a number"],
)
def test_gradient_and_curvature_are_the_derivatives_of_the_weighted_loss(trees: Trees, target: list[float], outputs: int) -> None:
    batch = {"y": torch.tensor(target)}
    scores = torch.linspace(-1, 1, 4 * outputs, dtype=torch.float64).view(4, outputs)
    gradient, curvature, losses = gradients(trees, scores, batch)
    assert torch.equal(losses, loss_at(trees, scores, batch))
    for output in range(outputs):
        step = torch.zeros(outputs, dtype=torch.float64)
        step[output] = 1e-4
        above, below = (loss_at(trees, scores + sign * step, batch) for sign in (1, -1))
        assert torch.allclose(gradient[:, output], (above - below) / 2e-4, atol=1e-6)
        assert torch.allclose(curvature[:, output], (above + below - 2 * losses) / 1e-8, atol=1e-5)
    bias = best_bias(trees, batch, outputs)
    gradient = gradients(trees, bias.repeat(4, 1), batch).gradient
    assert float(gradient.sum(0).abs().max()) < 2e-3, "the loss is least at the bias, as far as its grid tells"


@pytest.mark.parametrize("counts", [(60, 39, 1), (900, 99, 1), (3, 1_000, 2)])
def test_the_bias_of_rare_classes_is_that_of_their_shares(counts: tuple[int, ...]) -> None:
    trees = task(TensorColumn(name="y", dtype="int32", role="target", cardinality=3))
    batch = {"y": torch.arange(3, dtype=torch.int32).repeat_interleave(torch.tensor(counts))}
    shares = best_bias(trees, batch, 3).softmax(0)
    assert torch.allclose(shares, torch.tensor(counts, dtype=torch.float64) / sum(counts), rtol=0.02, atol=2e-4)


def test_monotone_features_that_are_none_are_refused() -> None:
    column = TensorColumn(name="y", dtype="float32", role="target")
    with pytest.raises(ConfigError, match=r"task\.monotone has b, which is no feature of the dataset; .*a"):
        task(column, {"monotone": {"b": 1}}).check()
    with pytest.raises(ConfigError, match=r"task\.monotone has category, whose categories have no order; encode it as a number"):
        task(column, {"monotone": {"category": 1}}).check()
    task(column, {"monotone": {"a": 1}}).check()
    task(column, {"monotone": {"category": 1}, "categories": 4}).check()
