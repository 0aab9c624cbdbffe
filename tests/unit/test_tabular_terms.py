"""The terms of a text beside numbers and categories, in the tasks `tabular` and `trees`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from reviews import make_reviews
from rows import training_on
from task_cases import create_task, random_batch
from torch import Tensor, nn
from trainings import open_dataset

from pipelines.applications.trees.task import Trees
from pipelines.config import Config
from pipelines.data.loader.reader import Reader
from pipelines.errors import ConfigError
from pipelines.tasks.bind import build_task, check_task
from pipelines.tasks.tabular import Perceptron
from pipelines.tasks.text import frequent_counts
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

TERMS = {"encoder": "terms", "words": [1], "length": 12}
FEATURES = {"text": TERMS, "price": "log1p", "category": "vocabulary"}


def model_with_terms(name: str) -> tuple[Perceptron, Any, dict[str, Tensor]]:
    """The model of a case, its terms no longer at 0, its task, and rows."""
    torch.manual_seed(0)
    task = create_task(name)
    model = task.model()
    assert isinstance(model, Perceptron)
    for bag in (*model.wide, *model.deep):
        nn.init.normal_(bag.vectors.weight)
    return model, task, random_batch(task, 5)


def test_terms_begin_without_effect() -> None:
    torch.manual_seed(0)
    task = create_task("tabular of terms")
    model, rows = task.model(), random_batch(task, 5)
    torch.testing.assert_close(model(rows), model(rows | {"terms": torch.zeros_like(rows["terms"])}))


def test_a_linear_model_of_terms_is_added_and_their_vectors_enter_the_layers() -> None:
    model, _, rows = model_with_terms("tabular of terms")
    (wide,), (deep,) = model.wide, model.deep
    assert wide(rows).shape == (5, 3) and deep(rows).shape == (5, 3) and model.inputs(rows)[:, -3:].equal(deep(rows))
    torch.testing.assert_close(model(rows), model.layers(model.inputs(rows)) + wide(rows))
    sums = sum(wide.weights(*rows["terms"].unbind(2))[:, [place]] * wide.vectors(rows["terms"][:, place, 0]) for place in range(6))
    torch.testing.assert_close(wide(rows), sums)


def test_each_member_has_the_terms_before_members_are_averaged() -> None:
    model, task, rows = model_with_terms("tabular of terms and members")
    members = model(rows)
    assert members.shape == (5, 2, 1)
    torch.testing.assert_close(members, model.layers(model.inputs(rows)) + model.wide[0](rows).unsqueeze(1))
    torch.testing.assert_close(model.eval()(rows), task.target.average(members))


@pytest.mark.parametrize("name", ["tabular of terms", "tabular of terms and members"])
def test_stages_of_a_pipeline_add_the_terms_as_the_model_does(name: str) -> None:
    model, task, rows = model_with_terms(name)
    stages = task.stages(model, 2)
    assert {parameter for stage in stages for parameter in stage.parameters()} == set(model.parameters())
    for is_training in (True, False):
        model.train(is_training)
        hidden = torch.empty(5, 0)
        for stage in stages:
            hidden = stage.train(is_training)(hidden, rows)
        torch.testing.assert_close(hidden, model(rows))


def test_without_terms_a_perceptron_has_the_weights_it_had() -> None:
    names = create_task("tabular of classes").model().state_dict().keys()
    assert names == {"embeddings.0.weight", "layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"}


def reviews_config(folder: Path, features: dict[str, Any] = FEATURES, task: dict[str, Any] | None = None, **train: Any) -> Config:
    raw = {split: make_reviews(rows, seed) for seed, (split, rows) in enumerate({"train": 200, "validation": 40, "test": 40}.items())}
    settings = task if task and "kind" in task else {"kind": "tabular", "hidden": [8], **(task or {})}
    return training_on(raw, folder, features, {"again": "binary"}, settings, **train)


def train_weights(context: WorkerContext, home: Path, run: str, train: dict[str, Any]) -> dict[str, Tensor]:
    """Weights after two epochs. Vectors of terms are trained both ways."""
    config = reviews_config(home, task={"terms_width": 4}, **train)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(f"{home}/{run}"), context, 2), Hooks()).run()
    return dict(strategy.model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.full), 3])
def test_p5_exact_has_the_same_bits_for_any_number_of_workers(size: int, tmp_path: Path) -> None:
    train = {"strategy": "exact", "shards": 6, "global_batch": 36}
    alone = train_weights(WorkerContext(), tmp_path, "alone", train)
    assert all(alone[name].any() for name in ("wide.0.vectors.weight", "deep.0.vectors.weight"))
    for actual in run_group(size, tmp_path / f"group-{size}", train_weights, tmp_path, f"by-{size}", train):
        assert actual.keys() == alone.keys()
        for name, values in alone.items():
            assert torch.equal(actual[name], values), name


@pytest.mark.slow
def test_ddp_trains_the_same_for_one_two_and_three_workers(tmp_path: Path) -> None:
    train = {"shards": 6, "global_batch": 36, "remainder": "keep", "optimizer": "sgd", "lr": 0.1}
    alone = train_weights(WorkerContext(), tmp_path, "alone", train)
    for size in (2, 3):
        for actual in run_group(size, tmp_path / f"group-{size}", train_weights, tmp_path, f"by-{size}", train):
            for name, values in alone.items():
                torch.testing.assert_close(actual[name], values, atol=1e-4, rtol=1e-4)


def test_trees_decide_on_the_counts_of_frequent_terms() -> None:
    texts = torch.tensor([[[1, 2], [3, 1], [0, 0]], [[2, 1], [3, 4], [9, 7]], [[0, 0], [0, 0], [0, 0]]], dtype=torch.int32)
    assert frequent_counts(texts, 3).tolist() == [[2, 0, 1], [0, 1, 4], [0, 0, 0]]
    assert frequent_counts(texts, 2).tolist() == [[2, 0], [0, 1], [0, 0]]


@pytest.mark.slow
def test_trees_grow_on_terms_beside_numbers_and_categories(tmp_path: Path) -> None:
    """Price and category alone reach an AUC of about 0.75."""
    task = {"kind": "trees", "terms": 20, "min_rows": 5, "depth": 4, "learning_rate": 0.2}
    config = reviews_config(tmp_path, task=task, strategy={"kind": "boosting", "rounds_per_epoch": 5})
    version = open_dataset(config)
    trees = build_task(config.task, version.manifest)
    assert isinstance(trees, Trees) and len(trees.inputs) == 2 + 20
    strategy = create_strategy(config.train, trees, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(f"{tmp_path}/run"), WorkerContext(), 2)
    assert Loop(config, version, trees, strategy, checkpoints, Hooks()).run().metrics["validation/auc"] > 0.95
    rows = {name: torch.from_numpy(values.copy()) for name, values in Reader(version, "test").read(0).items()}
    torch.testing.assert_close(torch.export.export(strategy.model, (rows,)).module()(rows), strategy.model(rows))


@pytest.mark.parametrize(
    ("features", "task", "says"),
    [
        ({"text": TERMS}, {}, "all features are of the encoder terms; set task.kind to text, or add a feature of another encoder"),
        (FEATURES, {"kind": "recommendation", "hidden": [8], "network": "dlrm"}, "task.kind is recommendation, which does not take text"),
    ],
)
def test_what_takes_no_terms_is_said_before_rows_are_read(
    features: dict[str, Any], task: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        check_task(reviews_config(tmp_path, features, task))
    assert says in str(error.value)


def test_the_order_of_a_text_is_refused_before_rows_are_read(tmp_path: Path) -> None:
    for monotone, says in (({"text": 1}, "task.monotone has text, whose terms have no order"), ({"prize": 1}, "did you mean price?")):
        with pytest.raises(ConfigError) as error:
            check_task(reviews_config(tmp_path, task={"kind": "trees", "monotone": monotone}))
        assert says in str(error.value)
    check_task(reviews_config(tmp_path, task={"kind": "trees", "monotone": {"price": -1}}))  # without the text
