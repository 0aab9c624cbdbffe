"""The config of a whole pipeline, and which of its settings determine the dataset and the model."""

import json
import re
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from pipelines.config.dataset.dataset import Dataset, FoldSplit
from pipelines.config.dataset.windows import complete_scales, window_faults
from pipelines.config.features.base import is_pattern, matches_name
from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.secrets import ELSEWHERE, find_secrets
from pipelines.config.section import Section
from pipelines.config.serving import Endpoint, Export, Registry
from pipelines.config.source.source import Source
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.tasks.task import TASKS
from pipelines.config.tracking import Tracking
from pipelines.config.train.base import PLACEMENT
from pipelines.config.train.defaults import check_strategy, fill_train_defaults
from pipelines.config.train.train import Train, check_row_pairs
from pipelines.config.tuning import Tune
from pipelines.errors import ConfigError


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise ValueError("must have 1 to 100 ASCII letters, digits, _, . and -, and begin with a letter or digit")
    return name


NamedTask = Annotated[SerializeAsAny[TaskSettings], BeforeValidator(TASKS.parse)]


class Config(Section):
    """One YAML file describes one pipeline, from raw tables to a tracked model."""

    name: Annotated[str, AfterValidator(_check_name)]
    """Name of the pipeline, its MLflow experiment and its runs."""
    source: Source
    """Raw tables, the query over them, and conditions that its rows must satisfy."""
    dataset: Dataset
    """Where versions are stored, how rows are split, and how columns are encoded."""
    task: NamedTask
    """What the model learns, and its network."""
    train: Train = Field(default_factory=Train)
    """How the model is trained, and on how many workers."""
    tracking: Tracking = Field(default_factory=Tracking)
    """Where MLflow stores the results."""
    export: Export = Export()
    """How a model is written for other software and hardware."""
    endpoint: Endpoint = Endpoint()
    """How a model is served over HTTP."""
    registry: Registry = Registry()
    """What a model must reach before it becomes the champion."""
    tune: Tune = Tune()
    """Which settings are searched, and how."""

    @model_validator(mode="after")
    def _holds_no_secret(self) -> "Config":
        """A config is logged, shown and stored with the dataset. An error about the whole config does not repeat its values."""
        words: Any = {"source": {"query", "expect"}, "train": {"init_from": {"rename"}}}  # a tensor may be called token_type
        if secrets := list(find_secrets(self.model_dump(mode="json", by_alias=True, exclude=words))):
            raise ValueError(f"{', '.join(secrets)}: holds a password or a token, {ELSEWHERE}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any) -> Any:
        """Training has the defaults of its task, and scales are those of the windows."""
        return complete_scales(fill_train_defaults(values)) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _training_fits_the_task(self) -> "Config":
        check_strategy(self.task, self.train.strategy)
        if self.task.pairs_rows:
            check_row_pairs(self.train)
        names = [name for name, settings in self.dataset.features.items() if settings.keeps_missing]
        if names and not self.task.takes_missing:
            kinds = " or ".join(kind for kind, settings in TASKS.by_name.items() if settings.takes_missing and not settings.origin_reader)
            raise ValueError(
                f"dataset.features.{names[0]}: impute is keep, but task.kind {self.task.kind} takes no missing numbers; set impute to "
                f"median, or task.kind to {kinds}"
            )
        return self

    @model_validator(mode="after")
    def _windows_and_fold_fit_the_split(self) -> "Config":
        if self.source.windows and (faults := list(window_faults(self.source.windows, self.dataset))):
            raise ValueError("; ".join(faults))
        fold, split = self.train.fold, self.dataset.split
        if fold is not None and not isinstance(split, FoldSplit):
            raise ValueError(f"train.fold is {fold}, but dataset.split has no folds; give it folds: 5, or leave train.fold out")
        if fold is not None and isinstance(split, FoldSplit) and fold > split.trainings:
            times = f" {split.repeats} times" if split.repeats > 1 else ""
            raise ValueError(f"train.fold is {fold}, but there are {split.folds} folds{times}; choose one of 1 to {split.trainings}")
        return self

    @model_validator(mode="after")
    def _slices_are_columns(self) -> "Config":
        columns = self.dataset.encoders
        for name in self.task.slices:
            if name not in columns and not any(is_pattern(pattern) and matches_name(pattern, name) for pattern in columns):
                remedy = suggestion(name, columns, "add it to dataset.passthrough")
                raise ValueError(f"task.slices: {name} is no column of the dataset, which has {name_list(columns, name)}; {remedy}")
        return self

    @model_validator(mode="after")
    def _left_out_columns_are_features(self) -> "Config":
        features = self.dataset.features
        for name in self.task.left_out:
            if name not in features and not any(is_pattern(pattern) and matches_name(pattern, name) for pattern in features):
                remedy = suggestion(name, features, "remove it from task.use")
                raise ValueError(f"task.use: {name} is no feature of the dataset, which has {name_list(features, name)}; {remedy}")
        if features and features.keys() <= {*self.task.left_out}:
            raise ValueError(f"task.use leaves out {name_list(features)}, so that the model has no input; use a feature")
        return self

    @model_validator(mode="after")
    def _weights_are_weights(self) -> "Config":
        name, columns = self.task.sample_weight, self.dataset.passthrough
        if not name:
            return self
        if name not in columns:
            listed = f"which has {name_list(columns, name)}" if columns else "which is empty"
            remedy = suggestion(name, columns, f"add passthrough: {{{name}: weight}} to dataset")
            raise ValueError(f"task.sample_weight: {name} is no column of dataset.passthrough, {listed}; {remedy}")
        if columns[name].encoder != "weight":
            raise ValueError(
                f"task.sample_weight: {name} has the encoder {columns[name].encoder}, with which a weight may be negative; set "
                f"dataset.passthrough.{name} to weight"
            )
        return self

    @property
    def experiment(self) -> str:
        return self.tracking.experiment or self.name

    @property
    def starts_from_weights(self) -> bool:
        """Whether the weights before the first step come from elsewhere: those of `train.init_from`, or of the runs that the task names."""
        return self.train.init_from.is_given or bool(self.task.origin_reader)

    @property
    def data_identity(self) -> dict[str, Any]:
        """Settings that determine a dataset version: `source` and `dataset` without paths, since checksums identify the files, and
        without `max_share_error`, `refit` and `keep`, which change no row.

        `etl.identity` adds the parts of paths that rows contain. Raises ConfigError if a file is not there whose content decides rows.
        """
        self.dataset.check_files()
        excluded: dict[str, Any] = dict.fromkeys(("path", "max_share_error", "refit", "keep"), True)
        for section in ("features", "target", "passthrough"):
            columns = getattr(self.dataset, section)
            hidden = {name: set(settings.excluded_from_identity) for name, settings in columns.items() if settings.excluded_from_identity}
            if hidden:
                excluded[section] = hidden
        paths: Any = {"source": self.source.excluded_from_identity, "dataset": excluded}
        settings = self.model_dump(mode="json", include={"source", "dataset"}, exclude=paths)
        # Of patterns the first that matches counts, so their order decides; keys of a mapping are compared without one.
        order = {} if self.dataset.is_resolved else {"feature_order": list(self.dataset.features)}
        return {**settings, "dataset": {**settings["dataset"], **order}}

    @property
    def placement(self) -> dict[str, Any]:
        """Settings that decide no model, in the form in which a dump of `train` excludes them."""
        return {"train": {**dict.fromkeys(PLACEMENT, True), "strategy": set(self.train.strategy.placement)}}

    @property
    def model_identity(self) -> str:
        """Hex digest of the settings that, with the dataset, determine the model: of `task` those that change it, and `train` without
        placement. Raises ConfigError if a file is not there whose content decides the model."""
        if self.task.fault:
            raise ConfigError(self.task.fault)
        excluded: Any = {**self.placement, "task": self.task.excluded_from_identity}
        settings = self.model_dump(mode="json", include={"task": True, "train": True}, exclude=excluded)
        settings["train"] |= {"init_from": self.train.init_from.identity, "lr_factors": list(self.train.lr_factors.items())}
        if not self.train.changes:
            del settings["train"]["changes"]  # so that trainings of before there were any are found
        return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
