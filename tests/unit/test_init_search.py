"""A draft has a search that suits its task: `lockstep tune` takes it as it stands, and begins with the draft. No Spark, and no Ray."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from drafts import draft_config

from pipelines import api
from pipelines.applications.trees.settings import TreesSettings
from pipelines.commands import COMMANDS
from pipelines.config import Config, load
from pipelines.config.dataset.dataset import FoldSplit
from pipelines.config.load import parse
from pipelines.config.tasks.task import TASKS, TabularSettings
from pipelines.config.tuning import Tune, around
from pipelines.errors import ConfigError
from pipelines.init.draft import Request
from pipelines.init.search_section import default_space, read_budget
from pipelines.tuning.space import check_search, config_params, config_values, parse_trial

CONF = Path(__file__).parents[2] / "conf"
ROWS = 200


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of which a linear model learns most, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_HOME", raising=False)
    chance = random.Random(0)
    rows = [(chance.gauss(0, 1), chance.gauss(0, 1)) for _ in range(ROWS)]
    lines = [f"{x:.4f},{z:.4f},{2 * x - z + chance.gauss(0, 0.1):.4f}" for x, z in rows]
    (tmp_path / "flats.csv").write_text("\n".join(["x,z,y", *lines]) + "\n")
    return tmp_path / "flats.csv"


def search_config(config: Config) -> Config:
    return config.model_copy(update={"tune": Tune(space=default_space(config))})


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_default_space_of_every_config_is_accepted_and_contains_the_config(path: Path) -> None:
    config = load(path)
    if isinstance(config.dataset.split, FoldSplit):
        config = load(path, {"train.fold": 1})
    config = search_config(config)
    assert config.tune.space, "every one has some"
    check_search(config, str(path))
    params = config_params(config)
    assert params is not None and params.keys() == config.tune.space.keys()
    assert parse_trial(config_values(config), params).model_identity == config.model_identity, "so that a training by hand answers trial 1"


def test_the_settings_of_each_kind_say_what_is_searched() -> None:
    adult = load(CONF / "adult.yaml")
    assert {"train.lr", "train.weight_decay", "task.dropout", "task.hidden"} == default_space(adult).keys()
    widths = default_space(adult)["task.hidden"].choice
    assert widths == ([256, 256], [128, 128], [512, 512], [256, 256, 256], [256])
    linear = load(CONF / "adult.yaml", {"task.hidden": [], "task.dropout": 0.0})
    assert default_space(linear).keys() == {"train.lr", "train.weight_decay"}, "the others have no effect"
    trees = default_space(load(CONF / "adult_trees.yaml"))
    assert trees and all(name.startswith("task.") for name in trees), "what trees have none of is not searched"
    no_decay = load(CONF / "adult.yaml", {"train.weight_decay": 0})
    assert "train.weight_decay" not in default_space(no_decay), "0 lies in no range of orders of magnitude"


@pytest.mark.parametrize("leaves", [2, 31, 512])
def test_a_space_stays_within_what_a_setting_may_be(leaves: int) -> None:
    config = load(CONF / "adult_trees.yaml", {"task.leaves": leaves, "task.feature_share": 0.1, "task.min_rows": 1, "task.l2": 3.0})
    check_search(search_config(config))
    assert config_params(search_config(config)) is not None


def test_a_range_around_a_value_has_few_digits() -> None:
    assert around(0.002).log == (0.0002, 0.02) and around(2e-5, 4).log == (5e-6, 8e-5)
    assert around(1 / 3, 10).log == (0.0333, 3.33)


def test_a_draft_has_a_search_and_a_budget_if_one_is_asked_for(table: Path) -> None:
    sections = draft_config(Request("flats.csv", "y", "flats")).sections
    assert list(sections)[-1] == "tune" and sections["tune"].keys() == {"space", "combine", "alternatives"}
    api.init("flats.csv", "y", "flats.yaml", rehearse=False, tune="10m")
    text = Path("flats.yaml").read_text()
    assert "# what `lockstep tune` varies; its first trial has the settings above\ntune:\n  space:\n    train.lr: {log: [" in text
    assert yaml.safe_load(text)["tune"] == {**sections["tune"], "budget": "10m", "alternatives": list(sections["tune"]["alternatives"])}
    trees, network = (parse({**yaml.safe_load(text), **sections}, "") for sections in yaml.safe_load(text)["tune"]["alternatives"])
    assert (trees.task.kind, network.task.kind, network.task.hidden) == ("trees", "tabular", (128, 128)), "beside a linear model"


@pytest.mark.parametrize(("text", "value"), [("10m", "10m"), ("90s", "90s"), ("5000", 5000), ("", None)])
def test_a_budget_is_a_time_or_a_number_of_epochs(text: str, value: Any) -> None:
    assert read_budget(text) == value


@pytest.mark.parametrize(
    ("budget", "fault", "remedy"),
    [
        ("ten", "--tune: must be a time such as 90s, 10m or 2h, or a whole number of epochs of all trials together (got ten)", "10m"),
        ("0s", "--tune: is 0s, in which no trial can be trained; give it at least 1s", "1s"),
        ("0", "--tune: must be text, or greater than 0", "10m"),
        ("2", "flats.yaml: tune.budget is 2 epochs, and a trial has", "5000"),
    ],
)
def test_a_budget_that_cannot_be_is_one_error_whose_remedy_works(table: Path, budget: str, fault: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as error:
        api.init("flats.csv", "y", "flats.yaml", rehearse=False, tune=budget)
    assert str(error.value).replace("'", "").startswith(fault) and "\n" not in str(error.value)
    assert not Path("flats.yaml").exists()
    api.init("flats.csv", "y", "flats.yaml", rehearse=False, tune=remedy)


def test_the_file_of_an_earlier_winner_that_was_edited_is_kept(table: Path) -> None:
    Path("flats_tuned.yaml").write_text("name: edited\n")
    with pytest.raises(ConfigError, match=r"flats_tuned\.yaml exists, and is no file that a search has written"):
        api.init("flats.csv", "y", "flats.yaml", rehearse=False, tune="10m")
    assert not Path("flats.yaml").exists(), "before anything is done"


def test_a_task_whose_settings_are_not_searched_is_refused_in_one_line(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TabularSettings, "search_space", lambda self, train: {})
    monkeypatch.setattr(TreesSettings, "search_space", lambda self, train: {})
    with pytest.raises(ConfigError, match=r"^flats\.csv: --tune is given, but a task of kind tabular has no .* leave --tune out") as error:
        api.init("flats.csv", "y", "flats.yaml", rehearse=False, tune="10m")
    assert "\n" not in str(error.value)
    draft = api.init("flats.csv", "y", "flats.yaml", rehearse=False)
    assert "tune" not in draft.sections


def test_a_task_with_a_strategy_of_its_own_is_searched_only_by_what_it_says() -> None:
    trees = TASKS.by_name["trees"]
    assert super(trees, trees()).search_space(load(CONF / "adult_trees.yaml").train) == {}


def test_the_command_goes_on_to_the_version_and_the_search(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[tuple[str, str]] = []
    monkeypatch.setattr("pipelines.commands._prepare", lambda config: steps.append(("etl", config.tune.budget)))
    monkeypatch.setattr("pipelines.api.tune", lambda config, origin: steps.append(("tune", origin)))
    monkeypatch.setattr("pipelines.commands._tell_page", lambda config: None)
    COMMANDS["init"]("lockstep init", ["flats.csv", "--target", "y", "--no-rehearsal", "--output", "flats.yaml", "--tune", "30s"])
    assert steps == [("etl", "30s"), ("tune", "flats.yaml")]
    assert capsys.readouterr().out.splitlines()[-1] == "written   flats.yaml"
    COMMANDS["init"]("lockstep init", ["flats.csv", "--target", "y", "--no-rehearsal", "--output", "other.yaml"])
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "next      lockstep etl other.yaml && lockstep train other.yaml",
        "or        lockstep etl other.yaml && lockstep tune other.yaml, which searches better settings",
    ]
    assert len(steps) == 2, "only if it is asked for"
