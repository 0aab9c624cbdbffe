"""A setting that is given has an effect, or is refused with what would use it: in files, in flags, and in what a run has recorded."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from pipelines.config import Config, from_command_line, load, parse
from pipelines.config.effects import OnlyWith, PlannedRun, ineffective_settings_in_run
from pipelines.config.features import ENCODERS
from pipelines.config.source.source import Table
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import STRATEGIES
from pipelines.errors import ConfigError

PIPELINE = """
name: toy
source: {tables: {points: {format: parquet, path: points}}}
dataset: {path: data, features: {x: standardize, y: standardize}, target: {label: binary}}
task: {kind: tabular}
"""
_LANGUAGE = {"dataset": {"path": "data", "features": {"text": {"encoder": "bytes", "length": 8}}}, "task.kind": "language"}
_WORDS = {**_LANGUAGE, "dataset": {"path": "data", "features": {"text": {"encoder": "words", "length": 8, "vocabulary": 38}}}}
_RATINGS = {"task.kind": "recommendation"}
_SERIES = {"task.kind": "forecasting"}
_MASKS = {"task.kind": "segmentation"}
_WHOLE_SERIES = {"task.kind": "series"}
_MEMBERS = {"kind": "ensemble", "of": ["0123", "4567"]}
_CLIENTS = {"kind": "federated", "client_column": "x"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "train.resize_seconds": ({"train.resize_seconds": 5}, {"train.workers": [1, 4]}),
    "train.parallel.replan": ({"train.parallel": {"kind": "fixed", "replan": True}}, {"train.parallel.kind": "auto"}),
    "train.balance.kind": ({"train.balance": "auto"}, {"train.workers": 2}),
    "train.balance": ({"train.balance": "auto", "train.workers": 2, "train.strategy": "sharded"}, {"train.strategy": "ddp"}),
    "train.ema_decay": ({"train.ema_decay": 0.99, "train.strategy": "sharded"}, {"train.strategy": "ddp"}),
    "train.changes": (
        {"train.changes": [{"after_epoch": 1, "lr": 0.1}], "train.strategy": "local_sgd"}, {"train.strategy": "ddp"}),
    "train.checkpoint.failure_hours": (
        {"train.checkpoint.failure_hours": 12}, {"train.checkpoint.every_seconds": "auto"}),
    "train.profile.ranks": ({"train.profile.ranks": [0]}, {"train.profile.steps": [50, 60]}),
    "train.profile.memory": ({"train.profile.memory": True}, {"train.profile.steps": [50, 60]}),
    "train.shuffle_window": ({"train.shuffle_window": 4, "train.shuffle": False}, {"train.shuffle": True}),
    "train.remainder": ({"train.remainder": "drop", "train.strategy": _CLIENTS, "train.global_batch": 80}, {"train.strategy": "ddp"}),
    "train.strategy.compression.rank": (
        {"train.strategy": {"kind": "ddp", "compression": {"kind": "topk", "rank": 2}}}, {"train.strategy.compression.kind": "powersgd"}),
    "train.strategy.compression.start_step": (
        {"train.strategy": {"kind": "ddp", "compression": {"kind": "bf16", "start_step": 2}}},
        {"train.strategy.compression.kind": "powersgd"}),
    "train.strategy.compression.share": (
        {"train.strategy": {"compression": {"share": 0.1}}}, {"train.strategy.compression.kind": "topk"}),
    "train.strategy.outer_lr": ({"train.strategy": {"kind": "local_sgd", "outer_lr": 0.7}}, {"train.strategy.outer": "nesterov"}),
    "train.strategy.outer_momentum": (
        {"train.strategy": {"kind": "local_sgd", "outer_momentum": 0.5}}, {"train.strategy.outer": "nesterov"}),
    "train.strategy.delta": (
        {"train.strategy": {**_CLIENTS, "delta": 1e-6}, "train.global_batch": 80},
        {"train.strategy.noise": 1.0, "train.strategy.clip": 1.0, "train.strategy.weighting": "equal", "train.seed": 5}),
    "train.strategy.schedule": ({"train.strategy": {"kind": "sharded", "schedule": "ZBVZeroBubble"}},
                                {"train.workers": 2, "train.strategy.pipeline": 2}),
    "train.strategy.microbatches": ({"train.strategy": {"kind": "sharded", "microbatches": 4}},
                                    {"train.workers": 2, "train.strategy.pipeline": 2}),
    "train.strategy.reshard_after_forward": (
        {"train.workers": 2, "train.strategy": {"kind": "sharded", "pipeline": 2, "reshard_after_forward": False}},
        {"train.strategy.pipeline": 1}),
    "train.strategy.reduce_every_pass": ({"train.strategy": {"kind": "sharded", "reduce_every_pass": True}}, {"train.grad_accum_steps": 2}),
    "train.strategy.staleness": ({"train.strategy": {"kind": "parameter_server", "staleness": 4}}, {"train.strategy.mode": "bounded"}),
    "train.momentum": ({"train.momentum": 0.9}, {"train.optimizer": "sgd"}),
    "train.schedule": ({"train.schedule": "step"}, {"train.epochs": 11}),
    "train.early_stopping": ({"train.early_stopping": 4}, {"train.epochs": 4 + 2}),
    "train.step_epochs": ({"train.step_epochs": 3}, {"train.schedule": "step"}),
    "train.lr_gamma": ({"train.lr_gamma": 0.5, "train.epochs": 11}, {"train.schedule": "step"}),
    "train.sync_batch_norm": ({"train.sync_batch_norm": True}, {"task.batch_norm": True}),
    "tune.scheduler.min_epochs": ({"tune.scheduler": {"kind": "none", "min_epochs": 2}}, {"tune.scheduler.kind": "asha"}),
    "tune.scheduler.reduction": ({"tune.scheduler": {"kind": "none", "reduction": 2}}, {"tune.scheduler.kind": "asha"}),
    **{
        f"tune.scheduler.{name}": ({"tune.scheduler": {"kind": "asha", name: value}}, {"tune.scheduler.kind": "pbt"})
        for name, value in {"interval_epochs": 2, "quantile": 0.5, "resample": 0.5}.items()
    },
    "tune.proposer": ({"tune.scheduler": "pbt", "tune.proposer": "tpe"}, {"tune.proposer": "random"}),
    "task.batch_norm": ({"task.batch_norm": True, "task.hidden": []}, {"task.hidden": [64, 32]}),
    "task.dropout": ({"task.dropout": 0.1, "task.hidden": []}, {"task.hidden": [64, 32]}),
    "task.embedding": ({"task.embedding": 8}, {"dataset.features.x": "vocabulary"}),
    "task.terms_width": ({"task.terms_width": 8}, {"dataset.features.x": "terms"}),
    "task.terms": ({"task": {"kind": "trees", "terms": 100}}, {"dataset.features.x": "terms"}),
    "task.number_embedding.kind": (
        {"task.number_embedding": "piecewise", "dataset.features": {"x": "vocabulary"}}, {"dataset.features": {"x": "normal_quantile"}}),
    **{
        f"task.number_embedding.{name}": ({"task.number_embedding": {"kind": kind, name: value}}, {"task.number_embedding.kind": other})
        for name, value, kind, other in (
            ("width", 8, "none", "piecewise"), ("bins", 8, "periodic", "piecewise"), ("frequencies", 8, "piecewise", "periodic"),
            ("scale", 0.5, "piecewise", "periodic"))
    },
    **{
        f"task.{name}": (
            {"dataset.features": {"text": "terms"}, "task": {"kind": "text", name: value}},
            {"dataset.features": {"text": {"encoder": "sequence", "length": 8}}},
        )
        for name, value in {"widths": [2], "filters": 9}.items()
    },
    "task.kernel": ({**_SERIES, "task.kernel": 5, "task.network": "linear"}, {"task.network": "dlinear"}),
    "task.heads": ({**_LANGUAGE, "task.heads": 2, "task.network": "lstm"}, {"task.network": "gpt"}),
    "task.cutoffs": ({**_WORDS, "task.cutoffs": [10, 40]}, {"dataset.features.text.vocabulary": 39}),
    "task.chunk_tokens": ({**_WORDS, "task.cutoffs": [10, 20], "task.chunk_tokens": 8}, {"task.cutoffs": []}),
    "task.temperature": ({**_LANGUAGE, "task.temperature": 0.5, "task.sample_tokens": 0}, {"task.sample_tokens": 200}),
    "task.elastic_points": ({**_MASKS, "task.elastic_points": 8}, {"task.elastic": 4}),
    "task.patches_per_row": ({**_MASKS, "task.patches_per_row": 2}, {"task.patch": [8, 8]}),
    "task.hidden": ({**_RATINGS, "task.hidden": [8]}, {"task.network": "dlrm"}),
    "task.filters": ({**_WHOLE_SERIES, "task.filters": [8]}, {"task.network": "convolution"}),
    **{
        f"task.{name}": ({**_SERIES, f"task.{name}": value}, {"task.network": "transformer"})
        for name, value in (("patch", 8), ("layers", 2), ("width", 64))
    },
    "task.kernels": ({**_WHOLE_SERIES, "task.kernels": 8, "task.network": "convolution"}, {"task.network": "rocket"}),
    "task.user": ({**_RATINGS, "task.user": ["x"], "task.network": "dlrm"}, {"task.network": "factors"}),
    "task.item": ({**_RATINGS, "task.item": ["x"], "task.network": "dlrm"}, {"task.network": "factors"}),
    "task.quantiles": ({"task.quantiles": [0.5], "dataset.target": {"z": "standardize"}}, {"task.loss": "quantiles"}),
    "task.label_smoothing": ({"task": {"kind": "trees", "label_smoothing": 0.1}}, {"task.kind": "tabular"}),
    "dataset.features.x.column": (
        {"dataset.features.x": {"encoder": "fourier", "column": "a", "columns": ["b", "c"]}}, {"dataset.features.x.columns": []}),
    "source.tables.points.schema": (
        {"source.tables.points": {"format": "binaryFile", "path": "points", "schema": "path string"}},
        {"source.tables.points.format": "parquet"}),
    "registry.tolerance": ({"registry.tolerance": 0.1, "registry.compare": False}, {"registry.compare": True}),
    "registry.confidence": ({"registry.confidence": 0.9, "registry.compare": False}, {"registry.compare": True}),
    "registry.resamples": ({"registry.resamples": 10, "registry.compare": False}, {"registry.compare": True}),
    "registry.seed": ({"registry.seed": 2, "registry.compare": False}, {"registry.compare": True}),
    "registry.metric": ({"registry.metric": "auc", "registry.compare": False}, {"registry.compare": True}),
    "registry.slice_bound": ({"registry.slice_bound": 0.5}, {"registry.slices": ["x"]}),
    "registry.slice_rows": ({"registry.slice_rows": 50}, {"registry.slices": ["x"]}),
    **{
        f"train.{name}": ({"task": {"kind": "trees"}, f"train.{name}": value}, {"task": {"kind": "tabular"}})
        for name, value in {
            "optimizer": "adam", "weight_decay": 0.1, "clip_norm": 1.0, "precision": "fp32", "compile": True, "grad_accum_steps": 2,
            "shuffle": False, "init_from": "0123", "freeze": ["x"], "lora": {"targets": ["x"]},
            "lr_factors": {"x": 2.0}, "lr": 0.002, "global_batch": 32, "schedule": "one_cycle", "warmup": 0.1,
        }.items()
    },
    "train.epochs": ({"task": _MEMBERS, "train.epochs": 5}, {"train": {}, "task.rounds": 5}),
    "train.max_steps": ({"task": _MEMBERS, "train.max_steps": 5}, {"task": {"kind": "tabular"}}),
    "endpoint.follow_seconds": (
        {"endpoint.follow_seconds": 1.0, "endpoint.model": "models:/toy/3"}, {"endpoint.model": "models:/toy@champion"}),
}  # fmt: skip
"""By setting: values with which it has no effect, and the remedy."""


def values_with(changes: dict[str, Any]) -> dict[str, Any]:
    values, changes = yaml.safe_load(PIPELINE), deepcopy(changes)
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        holder = values
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = value
    return values


@pytest.mark.parametrize("setting", CASES)
def test_a_setting_without_effect_is_refused_and_its_remedy_works(setting: str) -> None:
    useless, remedy = CASES[setting]
    with pytest.raises(ConfigError) as refused:
        parse(values_with(useless), "x.yaml")
    (line,) = str(refused.value).splitlines()
    assert re.match(rf"x.yaml: {setting}(\.kind)?: has no effect", line) and ", or remove " in line
    assert parse(values_with({**useless, **remedy}), "x.yaml")


def test_a_config_for_several_workers_can_be_tried_on_one() -> None:
    values = values_with({"train.workers": [1, 4], "train.resize_seconds": 5})
    assert parse({**values, "train": {**values["train"], "workers": 1}}, "x.yaml")


@pytest.mark.parametrize(
    ("useful", "useless"),
    [
        ({"train.early_stopping": 3}, {"train.early_stopping": 4}),  # a first epoch is the best so far, and the fifth is the last
        ({"train.schedule": "step", "train.step_epochs": 4}, {"train.schedule": "step", "train.step_epochs": 5}),
    ],
    ids=["early_stopping", "schedule"],
)
def test_the_default_of_five_epochs_must_be_enough(useful: dict[str, Any], useless: dict[str, Any]) -> None:
    assert parse(values_with(useful), "x.yaml")
    with pytest.raises(ConfigError, match=r"has no effect while train\.epochs is 5"):
        parse(values_with(useless), "x.yaml")
    assert parse(values_with({**useless, "train.epochs": 1}), "x.yaml"), "a short trial of a config"


def settings_with_rules(section: type[BaseModel], prefix: str) -> Iterator[str]:
    """Dotted names of the settings of a section, and of those inside it, whose annotation says beside what they have an effect."""
    for name, field in section.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        if any(isinstance(rule, OnlyWith) for rule in field.metadata):
            yield dotted
        for kind in [field.annotation, *get_args(field.annotation)]:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from settings_with_rules(kind, f"{dotted}.")


def test_every_rule_is_tried() -> None:
    strategies = [STRATEGIES.class_for(kind) for kind in STRATEGIES.by_name]
    sections = [
        *((section, "") for section in (Config,)),
        *((settings, "task.") for settings in TASKS.by_name.values()),
        *((settings, "dataset.features.x.") for settings in ENCODERS.by_name.values()),
        *((settings, "train.strategy.") for settings in strategies),
        (Table, "source.tables.points."),
    ]
    names = {name for section, prefix in sections for name in settings_with_rules(section, prefix)}
    names |= {name for settings in strategies for name in settings.rules}
    assert {name for name in names - CASES.keys() if name.removesuffix(".kind") not in CASES} == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"train.momentum": 0, "train.strategy.compression": "none", "train.sync_batch_norm": False, "train.balance": "equal"},
        {"train.strategy": {"kind": "ddp", "compression": {}}},
    ],
    ids=["asks for nothing", "an empty section"],
)
def test_what_asks_for_nothing_or_may_be_used_passes(changes: dict[str, Any]) -> None:
    assert parse(values_with(changes), "x.yaml")


def test_flags_and_files_have_one_rule(tmp_path: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(PIPELINE)
    message = (
        r"^--train.momentum: has no effect while train.optimizer is adamw; set train.optimizer to sgd, or remove momentum \(got 0.5\)$"
    )
    with pytest.raises(ConfigError, match=message):
        load(path, {"train.momentum": 0.5})
    with pytest.raises(ConfigError, match=message):
        from_command_line("jobs/train.py", [str(path), "--train.momentum", "0.5"])
    with pytest.raises(ConfigError, match=r"^--train.balance: has no effect while train.workers is 1; set train.workers to 2 or more"):
        load(path, {"train.balance": "auto"})
    path.write_text(f"{PIPELINE}train: {{momentum: 0.5, shuffle_window: 2, shuffle: false}}\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert [line.partition(": has")[0] for line in str(refused.value).splitlines()] == [
        f"{path}: train.shuffle_window",
        f"{path}: train.momentum",
    ]


def test_a_config_that_names_every_setting_loads_again() -> None:
    for changes in ({}, {"train.strategy": "local_sgd"}, {"train.optimizer": "sgd", "train.workers": [1, 2]}):
        config = parse(values_with(changes), "x.yaml")
        written = config.model_dump(mode="json", by_alias=True)
        assert parse(written, "run").model_dump() == config.model_dump()
    written["train"]["step_epochs"] = 3
    with pytest.raises(ConfigError, match=r"train\.step_epochs: has no effect"):
        parse(written, "run")
    assert parse(written, "run", recorded=True).train.step_epochs == 3, "a run of before the rule can be verified"


def test_what_has_no_effect_in_a_run_is_named_and_its_remedies_work() -> None:
    changes = {"train.sync_batch_norm": True, "task.batch_norm": True, "train.early_stopping": 3}
    config = parse(values_with(changes), "x.yaml")
    run_faults = dict(ineffective_settings_in_run(config, PlannedRun("data/1", 10, 0, lambda: False)))
    assert "use a model that has, such as task.batch_norm" in run_faults["train.sync_batch_norm"]
    assert "has no rows; unset it, or add the split" in run_faults["train.early_stopping"]
    assert dict(ineffective_settings_in_run(config, PlannedRun("data/1", 10, 5, lambda: True))) == {}
    del changes["train.sync_batch_norm"], changes["train.early_stopping"]
    assert dict(ineffective_settings_in_run(parse(values_with(changes), "x.yaml"), PlannedRun("data/1", 10, 0, lambda: False))) == {}
