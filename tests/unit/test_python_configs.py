"""A config built in Python is that of a file: equal, with the same identities, and refused with the same lines."""

import inspect
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from config_remedies import VALUES

from pipelines import api
from pipelines.config import Config, EncoderSettings, TableSettings, TaskSettings, sections
from pipelines.config.features import ENCODERS
from pipelines.config.load import load, with_absolute_paths
from pipelines.config.section import Section
from pipelines.config.sections import ByFraction, Dataset, Source, StandardizeSettings, Table, TabularSettings, Tracking, Train
from pipelines.config.serving import EXPORTS
from pipelines.config.slices import ROOMS
from pipelines.config.source.source import TABLES
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import StrategySettings
from pipelines.errors import ConfigError

ROOT = Path(__file__).parents[2]
SECTIONS = ("source", "dataset", "task", "train", "tracking", "export", "endpoint", "registry", "tune")
SHIPPED = sorted(ROOT.glob("conf/*.yaml"))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", "/place/of/tests")


def build_from(config: Any) -> Any:
    """The config that is built from another one's sections."""
    return api.Config(name=config.name, **{name: getattr(config, name) for name in SECTIONS if name in config.model_fields_set})


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_sections_of_a_file_s_config_build_an_equal_one(file: Path) -> None:
    config = with_absolute_paths(load(file), Path("/place/of/tests"))
    built = build_from(config)
    assert built == config
    assert (built.data_identity, built.model_identity) == (config.data_identity, config.model_identity)


def test_sections_mappings_and_a_file_are_the_same_config(tmp_path: Path) -> None:
    built = api.Config(
        name="adult",
        source=Source(tables={"people": Table(format="csv", path="train.csv", schema="age int, job string")}, query="SELECT * FROM people"),
        dataset=Dataset(
            path="data",
            split=ByFraction(train=0.7, validation=0.1, test=0.2),
            features={"age": StandardizeSettings(), "job": "vocabulary"},
            target={"rich": "binary"},
        ),
        task=TabularSettings(hidden=(8,)),
        train=Train(epochs=3, strategy="exact"),
    )
    split = {"train": 0.7, "validation": 0.1, "test": 0.2}
    values = {**VALUES, "dataset": {**VALUES["dataset"], "split": split}, "task": {"kind": "tabular", "hidden": [8]}}
    values["train"] = {"epochs": 3, "strategy": "exact"}
    assert api.Config(**values) == built
    file = tmp_path / "adult.yaml"
    file.write_text(yaml.safe_dump(values))
    assert api.read_config(file) == built
    assert api.Config(**{**values, "task": "tabular"}).task == TabularSettings(hidden=(256, 128))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"train": {"lr": -1}}, "train.lr: must be greater than 0 (got -1)"),
        ({"task": "tabluar"}, "task.kind: no kind 'tabluar'; did you mean tabular?"),
        (
            {"train": {"strategy": {"kind": "exact", "threds_per_shard": 1}}},
            "train.strategy.threds_per_shard: no such setting; did you mean ",
        ),
        ({"tracking": Tracking(tags={"password": "x"})}, "tracking.tags.password: holds a password"),
    ],
)
def test_an_error_is_the_line_of_a_file(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        api.Config(**{**VALUES, **changes})
    assert line in str(error.value) and str(error.value).startswith("api.Config: ") and "\n" not in str(error.value)


def test_a_section_refuses_its_own_settings_in_lines() -> None:
    with pytest.raises(ConfigError) as error:
        Train(lr=-1, epohcs=3)  # type: ignore[call-arg]
    assert str(error.value).splitlines() == [
        "Train: lr: must be greater than 0 (got -1)",
        "Train: epohcs: no such setting; did you mean epochs? (got 3)",
    ]


def test_editors_and_notebooks_complete_settings() -> None:
    assert {"epochs", "lr", "strategy"} <= inspect.signature(Train).parameters.keys()
    assert next(iter(inspect.signature(api.Config).parameters)) == "name"


def section_classes(annotation: Any) -> set[type[Section]]:
    """The sections in a type, and those in their settings."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        fields = annotation.model_fields.values()
        return {annotation}.union(*(section_classes(field.annotation) for field in fields))
    return set().union(*map(section_classes, get_args(annotation)))


def test_every_section_can_be_imported_from_one_place() -> None:
    classes = section_classes(Config) | set(ENCODERS.core_classes.values()) | set(TASKS.core_classes.values())
    missing = (
        classes
        - {Config, EncoderSettings, StrategySettings, TableSettings, TaskSettings}
        - {value for value in vars(sections).values() if isinstance(value, type)}
    )
    missing = {settings for settings in missing if not settings.__module__.startswith((*ROOMS, EXPORTS))}  # the core names no slice
    assert not missing, "an editor completes their settings where they are sections"


def test_a_table_of_any_format_is_made_by_its_name() -> None:
    settings = {"format": "sqlite", "path": "people.db", "schema": "age int", "table": "people"}
    assert Table(**settings) == TABLES.class_for("sqlite").model_validate(settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sheet is set, which format csv does not read; remove it, or set format: excel"):
        Table(format="csv", path="people.csv", schema="age int", sheet="People")  # type: ignore[call-arg]
