"""Models of other kinds beside a search: which are refused, by what metric their best epoch is chosen, and the file of one that is the
best. No Ray."""

from pathlib import Path
from typing import Any

import pytest
from trainings import open_dataset, training

from pipelines.config import Config, load
from pipelines.config.tuning import Tune
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.tuning.alternatives import AlternativeModel, read_alternatives
from pipelines.tuning.winner_file import NewSettings, replace_settings

TREES: dict[str, Any] = {"task": {"kind": "trees", "leaves": 7}, "train": {"epochs": 3}}
NETWORK: dict[str, Any] = {"task": "tabular", "train": {"global_batch": 64}}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return training(tmp_path, rows=640)


@pytest.fixture
def version(config: Config) -> Version:
    return open_dataset(config)


def add_alternative(config: Config, alternative: dict[str, Any]) -> Config:
    return config.model_copy(update={"tune": Tune(alternatives=[alternative])})


def read_one(config: Config, version: Version, alternative: dict[str, Any], metric: str = "auc") -> AlternativeModel:
    (model,) = read_alternatives(add_alternative(config, alternative), version, metric)
    return model


@pytest.mark.parametrize(
    ("alternative", "message", "remedy"),
    [
        ({"task": {"kind": "forest"}}, r"tune\.alternatives, model 1: task\.kind", NETWORK),
        ({"task": "trees", "train": {"momentum": 0.5}}, r"tune\.alternatives, model 1: train\.momentum", TREES),
        ({"task": "tabular", "train": {"lerning": 1}}, r"tune\.alternatives, model 1: train\.lerning", NETWORK),
        ({"task": "tabular", "train": {"global_batch": 4096}}, r"model 1: .*rows.*lower train\.global_batch", NETWORK),
    ],
)
def test_an_alternative_that_cannot_be_trained_is_refused(
    config: Config, version: Version, alternative: dict[str, Any], message: str, remedy: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_one(config, version, alternative)
    assert read_one(config, version, remedy).config.task.kind == read_one(config, version, remedy).task["kind"]


def test_an_alternative_has_the_metric_of_the_search(config: Config, version: Version) -> None:
    with pytest.raises(ConfigError, match=r"model 1: tune\.metric is rmse"):
        read_one(config, version, NETWORK, "rmse")


@pytest.mark.parametrize("name", ["fold", "seed", "workers", "monitor"])
def test_where_an_alternative_runs_and_which_rows_it_has_are_the_search_s(config: Config, version: Version, name: str) -> None:
    """A model of other rows would be found as if it were of these."""
    alternative = {"task": "tabular", "train": {"global_batch": 64, name: 2}}
    with pytest.raises(ConfigError, match=rf"train has {name}, which all models of a search have from the config; remove it"):
        add_alternative(config, alternative)
    del alternative["train"][name]
    assert read_one(config, version, alternative).config.train.seed == config.train.seed


def test_the_best_epoch_of_an_alternative_is_chosen_by_the_search_s_metric(config: Config, version: Version) -> None:
    model = read_one(config, version, NETWORK, "accuracy")
    assert (model.config.train.monitor, model.train["monitor"]) == ("accuracy", "accuracy")
    assert "monitor" not in read_one(config, version, NETWORK).train, "where it is chosen so anyway"


def test_settings_of_a_network_alone_are_not_kept_by_trees(config: Config, version: Version) -> None:
    train = config.train.model_dump(exclude_unset=True) | {"balance": "auto", "workers": 2, "seed": 5}
    model = read_one(config.model_copy(update={"train": type(config.train).model_validate(train)}), version, TREES)
    assert "balance" not in model.placement_names and {"workers", "seed"} <= model.placement_names
    assert (model.config.train.seed, model.config.train.max_workers, model.config.train.strategy.kind) == (5, 2, "boosting")


def test_the_file_of_an_alternative_is_its_training(tmp_path: Path) -> None:
    """Of the file's section `train` only that stays which says where it runs: the rate of a network is none of trees."""
    origin = Path(__file__).parents[2] / "conf" / "adult.yaml"
    text = origin.read_text().replace("train: {workers: 2,", "train: {workers: 2, seed: 7, storage: '${RUNS:-runs}',")
    settings = NewSettings(TREES, frozenset({"workers", "seed", "storage"}))
    path = tmp_path / "trees.yaml"
    path.write_text(replace_settings(text, settings))
    best = load(path)
    assert best.model_identity == load(origin, {**TREES, "train": {**TREES["train"], "workers": 2, "seed": 7}}).model_identity
    assert (best.task.kind, best.train.strategy.kind, best.train.epochs, best.train.seed) == ("trees", "boosting", 3, 7)
    assert "${RUNS:-runs}" in path.read_text() and "# Nine of ten rows are zero" in path.read_text()
