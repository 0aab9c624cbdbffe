"""Strategy `boosting`: the trees are the same for any number of workers, and after a stop."""

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
from groups import run_group
from reviews import make_reviews
from rows import training_on
from sklearn.metrics import roc_auc_score
from test_target_kinds import KINDS, make_case
from trainings import StopsAfter, open_dataset, training

from pipelines.applications.trees import boosting, lightgbm_network
from pipelines.applications.trees.boosting import Boosting, add_missing_row, best_bias, gradients
from pipelines.applications.trees.forest import Forest
from pipelines.applications.trees.lightgbm_network import Growth, MachineGroup
from pipelines.applications.trees.settings import TreesSettings
from pipelines.applications.trees.task import TreeInput, Trees
from pipelines.config import Config, parse
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task, task_data
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SETTINGS: dict[str, Any] = {
    "rows": 3_001,
    "epochs": 3,
    "strategy": {"kind": "boosting", "rounds_per_epoch": 10},
    "checkpoint": {"every_steps": 7},
}
CASES: dict[str, dict[str, Any]] = {
    "usual": {"task": {"kind": "trees", "learning_rate": 0.1}},
    "all features, monotone": {
        "task": {"kind": "trees", "learning_rate": 0.1, "feature_share": 1.0, "monotone": {"x2": 1}, "leaves": 7, "depth": 3, "l2": 1.0}
    },
    "weights": {"task": {"kind": "trees", "learning_rate": 0.1, "class_weights": [1.0, 2.5]}, "weight_scale": 1.0},
    "missing": {"task": {"kind": "trees", "learning_rate": 0.1}, "missing_share": 0.2},
    "terms": {
        "rows": 901,
        "task": {"kind": "trees", "learning_rate": 0.1, "terms": 20, "monotone": {"price": -1}},
        "features": {"text": {"encoder": "terms", "words": [1], "length": 12}, "price": "log1p", "category": "vocabulary"},
    },
}


def make_config(home: Path, changes: dict[str, Any]) -> Config:
    """The config of a training, whose rows are written once."""
    settings = {**SETTINGS, **changes}
    if "features" in changes:
        rows = settings.pop("rows")
        raw = {split: make_reviews(rows // (4 if seed else 1), seed) for seed, split in enumerate(("train", "validation", "test"))}
        return training_on(raw, home / "terms", settings.pop("features"), {"again": "binary"}, settings.pop("task"), **settings)
    folder_name = "weighted" if "weight_scale" in changes else "missing" if "missing_share" in changes else "plain"
    return training(home / folder_name, **settings)


def fit_run(
    context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None
) -> tuple[Trained, str, dict[str, torch.Tensor]]:
    """The result of a training, the digest of its model, and its weights."""
    config = make_config(home, changes)
    version = open_dataset(config)
    strategy = create_strategy(config.train, build_task(config.task, version.manifest), context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    task = build_task(config.task, version.manifest)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    assert isinstance(strategy.model, Forest)
    return trained, model_digest({**strategy.model.state_dict(), **strategy.model.facts}), strategy.weights()


def fit_in_turn(context: WorkerContext, home: Path, folder: Path) -> dict[str, Any]:
    return {case: fit_run(context, home, folder / case, changes)[:2] for case, changes in CASES.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("boosting")
    for case, changes in (("plain", "usual"), ("weighted", "weights"), ("missing", "missing"), ("terms", "terms")):
        (folder / case).mkdir()
        make_config(folder, CASES[changes])
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> dict[str, Any]:
    return fit_in_turn(WorkerContext(), home, home / "alone")


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.full), 3])
def test_p5_trees_and_metrics_are_equal_for_every_number_of_workers(home: Path, alone: dict[str, Any], workers: int) -> None:
    for actual in run_group(workers, home / f"group-{workers}", fit_in_turn, home, home / f"of-{workers}"):
        for case, expected in alone.items():
            assert actual[case][1] == expected[1], case
            assert actual[case][0].metrics == expected[0].metrics


@pytest.mark.full
@pytest.mark.parametrize("case", ["usual", "terms"])
def test_p5_a_stop_and_a_resume_on_another_number_of_workers_change_nothing(home: Path, alone: dict[str, Any], case: str) -> None:
    folder = home / f"stopped-{case}"
    for workers, stop_after in ((3, 4), (2, 4), (1, 9)):  # inside an epoch, and at the ends of two
        for trained, _, _ in run_group(workers, home / f"stopped-{case}-{workers}", fit_run, home, folder, CASES[case], stop_after):
            assert not trained.finished
    trained, digest, _ = fit_run(WorkerContext(), home, folder, CASES[case])
    assert (digest, trained.metrics) == (alone[case][1], alone[case][0].metrics)


def test_trees_learn_as_lightgbm_by_hand_does(home: Path, alone: dict[str, Any]) -> None:
    assert len({digest for _, digest in alone.values()}) == len(CASES)
    version = open_dataset(training(home / "plain", **{**SETTINGS, **CASES["usual"]}))
    arrays = {}
    for split in ("train", "test"):
        reader = Reader(version, split)
        groups = [{name: values.copy() for name, values in reader.read(number).items()} for number in range(len(reader.groups))]
        arrays[split] = {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}
    inputs = {split: np.stack([values for name, values in columns.items() if name != "label"], 1) for split, columns in arrays.items()}
    parameters = {"objective": "binary", "learning_rate": 0.1, "verbosity": -1, "num_threads": 1}
    by_hand = lightgbm.train(parameters, lightgbm.Dataset(inputs["train"], arrays["train"]["label"]), num_boost_round=30)
    expected = roc_auc_score(arrays["test"]["label"], by_hand.predict(inputs["test"]))
    all_features = {"task": {"kind": "trees", "learning_rate": 0.1, "feature_share": 1.0}}
    assert fit_run(WorkerContext(), home, home / "all-features", all_features)[0].metrics["test/auc"] == pytest.approx(expected, abs=0.005)
    assert expected > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_trees_of_every_kind_of_target_lower_its_loss(kind: str) -> None:
    case, rounds = make_case(kind), 30
    task = Trees(TreesSettings.model_validate({"kind": "trees", "min_rows": 5, **KINDS[kind][2]}), task_data(case.encoders))
    forest = task.model()
    assert isinstance(forest, Forest)
    forest.reserve(rounds * forest.outputs)
    forest.bias.copy_(best_bias(task, case.batch, forest.outputs))
    before = task.row_losses(forest.scores(forest.inputs(case.batch)), case.batch)[0].mean()
    inputs = forest.inputs(case.batch).numpy()
    group = MachineGroup(Growth(task.settings, task.inputs, forest.outputs, inputs, 1, 60.0), inputs, WorkerContext())
    try:
        group.begin(forest.scores(forest.inputs(case.batch)).numpy(), 1, 0)
        for _ in range(rounds):
            derivatives = gradients(task, torch.from_numpy(group.scores()), case.batch)
            grown = group.grow(derivatives.gradient.float().numpy(), derivatives.curvature.float().numpy(), 0.1)
            forest.add(grown)
        assert np.array_equal(group.scores(), forest.scores(forest.inputs(case.batch)).numpy())
    finally:
        group.close()
    assert task.row_losses(forest.scores(forest.inputs(case.batch)), case.batch)[0].mean() < before - 0.02 * abs(before)


def test_a_side_for_missing_numbers_is_learned_though_the_sample_has_none() -> None:
    """That a number is missing is all that tells the label, in rows behind those from which intervals are made."""
    random = np.random.default_rng(3)
    x = random.standard_normal((4_000, 2)).astype(np.float32)
    is_missing = random.random(4_000) < 0.3
    is_missing[:500] = False
    x[is_missing, 0] = np.nan
    x = np.ascontiguousarray(x)
    sample = add_missing_row(x[:500], [True, False])
    assert len(sample) == 501 and np.isnan(sample[-1]).tolist() == [True, False] and sample[-1, 1] == x[0, 1]
    assert add_missing_row(x[:500], [False, False]) is not sample and len(add_missing_row(x[:500], [False, False])) == 500
    inputs = [TreeInput("a", 0, 0, True), TreeInput("b", 0, 0, False)]
    gradient = np.where(is_missing, -1.0, 0.5).astype(np.float32)[:, None]
    group = MachineGroup(Growth(TreesSettings(leaves=2), inputs, 1, sample, 1, 60.0), x, WorkerContext())
    try:
        group.begin(np.zeros((4_000, 1)), 1, 0)
        (tree,) = group.grow(gradient, np.ones_like(gradient), 1.0)
    finally:
        group.close()
    forest = Forest((TensorColumn(name="a", dtype="float32"), TensorColumn(name="b", dtype="float32")), 1, nodes=3, values=0)
    forest.reserve(1)
    forest.add([tree])
    outputs = forest({"a": torch.from_numpy(x[:, 0].copy()), "b": torch.from_numpy(x[:, 1].copy())})[:, 0].numpy()
    assert np.allclose(outputs[is_missing], 1.0) and np.allclose(outputs[~is_missing], -0.5)


def test_a_monotone_output_rises_with_its_feature(home: Path) -> None:
    config = training(home / "plain", **{**SETTINGS, **CASES["all features, monotone"]})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    _, _, weights = fit_run(WorkerContext(), home, home / "monotone", CASES["all features, monotone"])
    forest = task.model()
    forest.load_state_dict(weights)
    assert len(weights["feature"]) == 30, "the trees of the best epoch, and no more"
    random = np.random.default_rng(2).standard_normal((8, 200)).astype(np.float32)
    batch = {f"x{number}": torch.from_numpy(values) for number, values in enumerate(random)}
    outputs = torch.stack([forest({**batch, "x2": torch.full((200,), value)})[:, 0] for value in np.linspace(-3, 3, 30)])
    assert (outputs.diff(dim=0) >= 0).all() and (outputs[-1] > outputs[0]).any()


def test_a_target_that_no_feature_tells_gives_trees_without_decisions(tmp_path: Path) -> None:
    config = training(tmp_path, **{**SETTINGS, **CASES["usual"], "one_class": ("train",), "epochs": 1})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    trained = Loop(
        config, version, task, strategy, Checkpoints(RunDirectory(str(tmp_path / "run")), WorkerContext(), 2), StopsAfter(None)
    ).run()
    assert trained.finished and (strategy.weights()["left_child"] == strategy.weights()["right_child"]).all()


def test_rows_without_any_weight_are_refused(home: Path) -> None:
    changes = {**CASES["usual"], "task": {"kind": "trees", "learning_rate": 0.1, "class_weights": [1.0, 0.0]}, "one_class": ("train",)}
    (home / "weightless").mkdir()
    config = training(home / "weightless", **{**SETTINGS, **changes})
    task = build_task(config.task, open_dataset(config).manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(str(home / "weightless" / "run")), WorkerContext(), 2)
    with pytest.raises(ConfigError, match=r"weights of all rows of the split train are 0; change task\.class_weights or"):
        Loop(config, open_dataset(config), task, strategy, checkpoints, StopsAfter(None)).run()
    changes["task"] = {"kind": "trees", "learning_rate": 0.1, "class_weights": [1.0, 0.5]}
    assert fit_run(WorkerContext(), home, home / "weighted-run", {**changes, "epochs": 1})[0].finished  # other weights


def test_what_boosting_cannot_train_is_refused_before_a_worker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = training(tmp_path, **{**SETTINGS, **CASES["usual"], "rows": 12})
    version = open_dataset(few)
    task = build_task(few.task, version.manifest)
    with pytest.raises(ConfigError, match=r"train of .* has 12 rows; trees need 16 to .*: .* lower train\.shards to at most 6"):
        Boosting.check(few.train, task, version)
    lower = training(tmp_path, **{**SETTINGS, **CASES["usual"], "rows": 12, "shards": 4})  # lower train.shards
    Boosting.check(lower.train, task, version)
    for name in ("many", "sample"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(boosting, "MOST_ROWS", 2_000)
    with pytest.raises(ConfigError, match=r"has 3,001 rows; trees need 16 to 2,000: train on a sample of the rows"):
        Boosting.check(few.train, task, open_dataset(training(tmp_path / "many", **{**SETTINGS, **CASES["usual"]})))
    sample = training(tmp_path / "sample", **{**SETTINGS, **CASES["usual"], "rows": 2_000})
    Boosting.check(few.train, task, open_dataset(sample))  # a sample of the rows
    values = few.model_dump(mode="json", exclude_unset=True)
    with pytest.raises(
        ConfigError, match=r"train\.strategy is ddp, which does not train a task of kind trees; set it to boosting, or remove it"
    ):
        parse({**values, "train": {"strategy": "ddp"}}, "toy")
    with pytest.raises(ConfigError, match=r"train\.optimizer: has no effect while train\.strategy is boosting; train a network"):
        parse({**values, "train": {"optimizer": "sgd"}}, "toy")
    network = build_task(parse({**values, "task": {"kind": "tabular"}, "train": {}}, "toy").task, version.manifest)
    with pytest.raises(ConfigError, match=r"boosting, and task\.kind tabular has no trees; set task\.kind to trees"):
        Boosting.check(lower.train, network, version)
    monkeypatch.setattr(lightgbm_network, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs lightgbm, which is not installed on .*; pip install lightgbm"):
        Boosting.check(lower.train, task, version)
