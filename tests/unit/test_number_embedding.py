"""Embeddings of numbers: which columns they take, what functions they are, and what a perceptron learns by them."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from pipelines.config.tasks.task import NumberEmbedding, TabularSettings
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.tabular import Periodic, PiecewiseLinear, Tabular, number_embedding

KINDS = ("piecewise", "periodic")
COLUMNS = (
    TensorColumn(name="age", dtype="float32"),
    TensorColumn(name="job", dtype="int32", cardinality=5),
    TensorColumn(name="place", dtype="float32", shape=(4,)),
    TensorColumn(name="is_new", dtype="uint8", cardinality=2),
    TensorColumn(name="rooms", dtype="int64"),
    TensorColumn(name="y", dtype="float32", role="target"),
)


def task(kind: str, **settings: object) -> Tabular:
    return Tabular(
        TabularSettings.model_validate({"hidden": [16], "number_embedding": {"kind": kind, "width": 6}, **settings}), Data(COLUMNS)
    )


def rows(count: int = 8) -> Batch:
    return {
        "age": torch.randn(count),
        "job": torch.randint(5, (count,), dtype=torch.int32),
        "place": torch.randn(count, 4),
        "is_new": torch.randint(2, (count,), dtype=torch.uint8),
        "rooms": torch.randint(9, (count,)),
        "y": torch.randn(count),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_single_numbers_are_embedded_and_all_else_enters_as_before(kind: str) -> None:
    model, batch = task(kind).model(), rows()
    assert model.embedded_numbers == ("age", "rooms") and model.numbers == ("place", "is_new") and model.indices == ("job",)
    width = model.embeddings[0].embedding_dim + 2 * 6 + 4 + 1
    assert model.inputs(batch).shape == (8, width) and model(batch).shape == (8, 1)
    changed = (model.inputs({**batch, "age": batch["age"] + 1}) != model.inputs(batch)).any(0)
    start = model.embeddings[0].embedding_dim
    assert changed[start : start + 6].any() and changed.sum() == changed[start : start + 6].sum(), "a number is in its own vector alone"


@pytest.mark.parametrize("kind", KINDS)
def test_without_rows_and_without_numbers(kind: str) -> None:
    assert task(kind).model()({name: values[:0] for name, values in rows().items()}).shape == (0, 1)
    data = Data((COLUMNS[1], COLUMNS[-1]))
    assert Tabular(TabularSettings(number_embedding=NumberEmbedding(kind="piecewise")), data).model().number_embedding is None


def test_a_piecewise_embedding_is_linear_in_every_piece_and_without_jumps() -> None:
    torch.manual_seed(0)
    embedding = PiecewiseLinear(columns=1, bins=4, width=3).double()
    torch.nn.init.normal_(embedding.bins)
    edges = [NormalDist().inv_cdf(share) for share in (0.25, 0.5, 0.75)]
    assert embedding.edges.tolist() == pytest.approx(edges, abs=1e-6)

    def slope(number: float) -> Tensor:
        pair = embedding(torch.tensor([[number], [number + 1e-6]], dtype=torch.float64))
        return (pair[1] - pair[0]) / 1e-6

    pieces = [[-9.0, -1.0], [-0.6, -0.1], [0.1, 0.6], [0.8, 9.0]]
    for first, second in pieces:
        torch.testing.assert_close(slope(first), slope(second), atol=1e-6, rtol=1e-6)
    assert not torch.allclose(slope(-0.6), slope(0.1)), "a piece has a slope of its own"
    for edge in edges:
        sides = embedding(torch.tensor([[edge - 1e-7], [edge + 1e-7]], dtype=torch.float64))
        torch.testing.assert_close(sides[0], sides[1], atol=1e-5, rtol=0)


def test_training_starts_with_straight_lines() -> None:
    embedding = number_embedding(NumberEmbedding(kind="piecewise"), 2)
    start, middle, end = embedding(torch.tensor([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]]))
    torch.testing.assert_close(middle, (start + end) / 2)


def test_a_periodic_embedding_is_of_waves() -> None:
    embedding = Periodic(columns=1, frequencies=2, scale=1.0, width=4)
    with torch.no_grad():
        embedding.frequencies.copy_(torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(embedding(torch.tensor([[0.3]])), embedding(torch.tensor([[1.3]])), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(embedding(torch.tensor([[0.3]])), embedding(torch.tensor([[0.8]])))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", KINDS)
def test_a_steep_function_of_a_number_is_learned_sooner(kind: str) -> None:
    """The target is in one of many steps of a column, which needs many units without an embedding."""
    columns = (TensorColumn(name="x", dtype="float32"), TensorColumn(name="y", dtype="float32", role="target"))

    def final_loss(embedding: dict[str, object]) -> float:
        torch.manual_seed(1)
        learned = Tabular(TabularSettings.model_validate({"hidden": [32], "number_embedding": embedding}), Data(columns))
        model, values = learned.model(), torch.randn(512)
        batch = {"x": values, "y": torch.sign(torch.sin(8 * values))}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(150):
            loss, weight = learned.loss(model, batch)
            optimizer.zero_grad()
            (loss / weight).backward()
            optimizer.step()
        return loss.item() / weight.item()

    assert final_loss({"kind": kind, "bins": 64} if kind == "piecewise" else {"kind": kind, "scale": 1.0}) < 0.6 * final_loss({})


def test_an_unknown_kind_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"number_embedding: must be one of none, piecewise, periodic \(got steps\)"):
        TabularSettings(number_embedding="steps")  # type: ignore[arg-type]
