"""The settings that a search varies: checks them before anything starts, and makes the config of a trial."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

from pipelines.config import Config
from pipelines.config.dataset.dataset import FoldSplit
from pipelines.config.load import parse_with_overrides
from pipelines.config.messages.words import name_list, suggestion, verb_for
from pipelines.config.tasks.functions import task_settings
from pipelines.config.train.base import PLACEMENT
from pipelines.config.tuning import Dimension
from pipelines.data.versions.versions import ancestry, open_version
from pipelines.errors import ConfigError, DatasetError
from pipelines.tuning.population import population_faults
from pipelines.tuning.proposals import grid_values, round_parameter
from pipelines.tuning.search import Params

_REFUSED = {
    "train.epochs": "decides how far all trials are trained; set train.epochs itself",
    "train.max_steps": "decides how far all trials are trained; set train.max_steps itself",
    "train.seed": "would choose luck; the winner is trained with tune.final_seeds fresh ones",
    "train.fold": "names the rows of a trial; set train.fold itself",
    "train.monitor": "is what trials are compared by; set tune.metric",
}
"""Settings that make no trial, and why."""
FEATURES = "dataset.features."
"""Prefix of the settings of a dataset version that may vary: how its features are encoded. All else decides rows, splits or target."""


def check_search(config: Config, origin: str = "") -> None:
    """Raise ConfigError, with a line for each fault, if a setting of `tune.space` does not exist or refuses a value that it may take, or
    if the search could not end with a trial. `origin` is the file that messages name.

    Of a range, its ends are tried, beside the config's own values of all other settings.
    """
    settings, prefix = config.tune, f"{origin}: " if origin else ""
    faults = [*_faults_of_plan(config), *_faults_of_space(config)]
    if isinstance(config.dataset.split, FoldSplit) and config.train.fold is None:
        faults.append("train.fold is not set, but dataset.split has folds; set it, as to 1: trials are compared on one fold")
    if not settings.space:
        faults = ["tune.space is empty; name settings and their values, such as {train.lr: {log: [1e-4, 1e-1]}}"]
    faults = faults or [*_faults_of_erasures(config)]
    if faults:
        raise ConfigError("\n".join(f"{prefix}{fault}" for fault in faults))


def _faults_of_plan(config: Config) -> Iterator[str]:
    settings, epochs, least = config.tune, config.train.epochs, config.tune.scheduler.min_epochs
    if config.train.parallel.kind == "auto":
        yield "train.parallel is auto, but a search places its trials itself; set it to fixed"
    if isinstance(settings.budget, int) and settings.budget < epochs:
        yield f"tune.budget is {settings.budget} epochs, and a trial has {epochs}; raise it, or lower train.epochs"
    if settings.scheduler.kind == "asha" and least > epochs:
        yield f"tune.scheduler.min_epochs is {least}, and a trial has {epochs} epochs; lower it, or raise train.epochs"
    if settings.scheduler.kind == "pbt":
        yield from population_faults(config)
    endless = [name for name, dimension in settings.space.items() if not grid_values(dimension)]
    if settings.proposer == "grid" and endless:
        names = ", ".join(endless)
        yield f"tune.proposer is grid, but {names} has a range without steps; give it a choice or int, or set tune.proposer to tpe"


def _faults_of_space(config: Config) -> Iterator[str]:
    values = config_values(config)
    for name, dimension in config.tune.space.items():
        section, _, inner = name.partition(".")
        setting = inner.partition(".")[0]
        if section in ("source", "dataset"):
            yield from _faults_of_feature(config, values, name, dimension)
        elif section not in ("task", "train") or not inner:
            rule = "is no setting of task, train or dataset.features, which alone decide a trial"
            yield f"tune.space: {name} {rule}; write it such as train.lr"
        elif name in _REFUSED:
            yield f"tune.space: {name} {_REFUSED[name]}"
        elif section == "train" and setting in PLACEMENT:
            yield f"tune.space: {name} decides where a training runs, and not its model; remove it"
        else:
            yield from _faults_of_values(config, values, name, dimension)


def _faults_of_feature(config: Config, values: dict[str, Any], name: str, dimension: Dimension) -> Iterator[str]:
    features, feature = config.dataset.features, name.removeprefix(FEATURES).partition(".")[0]
    if not name.startswith(FEATURES):
        yield (
            f"tune.space: {name} decides the rows on which trials are compared, and of dataset only features may vary; remove it, and "
            "search once for each of its values"
        )
    elif feature not in features:
        remedy = suggestion(feature, features, f"add {feature} to dataset.features")
        yield f"tune.space: {name} is of no feature of the dataset, which has {name_list(features, feature)}; {remedy}"
    elif features[feature].packs:
        yield (
            f"tune.space: {name} decides the windows that {feature} is cut into, on which trials are compared; remove it, and search once "
            "for each of its values"
        )
    else:
        yield from _faults_of_values(config, values, name, dimension)


def _faults_of_erasures(config: Config) -> Iterator[str]:
    """The fault of a search of features whose raw tables may still have rows that were erased; none if there is no version yet."""
    names = [name for name in config.tune.space if name.startswith(FEATURES)]
    if not names:
        return
    with suppress(DatasetError):  # that there is none, or a damaged one, is said by whoever opens it
        version = open_version(config.dataset.path, config.data_identity)
        if erased := next((manifest.version for manifest in ancestry(version) if manifest.erasures), None):
            yield (
                f"tune.space: {name_list(names)} {verb_for(len(names), 'needs', 'need')} further dataset versions, which ETL makes of the "
                f"raw tables, and rows that were erased from version {erased} would come back; remove it, or remove the rows from the raw "
                "tables, and run jobs/etl.py before the search"
            )


def _faults_of_values(config: Config, values: dict[str, Any], name: str, dimension: Dimension) -> Iterator[str]:
    """The first fault of a setting's values, in the words of the setting: of a choice's, or of a range's ends. A range that is not one
    of whole numbers has a number with a fraction too: its ends may be whole."""
    for value in dimension.choice if dimension.choice is not None else _numbers_to_try(dimension):
        try:
            parse_trial(values, {name: value})
        except ConfigError as error:
            yield from (f"tune.space: {line.removeprefix('--').removeprefix('a trial: ')}" for line in str(error).splitlines())
            return


def _numbers_to_try(dimension: Dimension) -> tuple[float, ...]:
    if dimension.bounds is None:
        return ()
    low, high = dimension.bounds
    between = () if dimension.integers is not None else (round_parameter(dimension, low + (high - low) / math.e),)
    return low, high, *between


def config_params(config: Config) -> Params | None:
    """The config's own values of the settings that vary; None unless each lies in its dimension."""
    values, params = config_values(config), Params()
    for name, dimension in config.tune.space.items():
        value = _setting(config, name)
        if dimension.choice is not None:
            equal = [choice for choice in dimension.choice if _setting(parse_trial(values, {name: choice}), name) == value]
            if not equal:
                return None
            params[name] = equal[0]
            continue
        low, high = dimension.bounds or (0, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            return None
        params[name] = int(value) if dimension.integers is not None else float(value)
    return params


def _setting(config: Config, name: str) -> Any:
    """The value of a setting; None if there is none, such as a key that a mapping does not have."""
    section: Any = config
    for part in name.split("."):
        section = section.get(part) if isinstance(section, Mapping) else getattr(section, part, None)
    return section


def config_values(config: Config) -> dict[str, Any]:
    """The config as its file has it, without `tune`, and without defaults of `train` that follow from `task`, which a trial may change."""
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tune"})
    task, train = values.get("task", {}), values.get("train", {})
    defaults = task_settings(task).defaults_for_training(task)
    values["train"] = {name: value for name, value in train.items() if name not in defaults or value != defaults[name]}
    return values


def parse_trial(values: dict[str, Any], params: Params) -> Config:
    """The config of a trial: plain values, in which parameters stand in place of settings. Raises ConfigError."""
    return parse_with_overrides(deepcopy(values), params, "a trial")
