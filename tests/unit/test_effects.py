"""A setting that is given has an effect, or is refused with what would use it: in files, in flags, and in what a run has recorded."""

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml

from pipelines.config import from_command_line, load, parse
from pipelines.config.effects import TABLE
from pipelines.errors import ConfigError

PIPELINE = """
name: toy
source: {tables: {points: {format: parquet, path: points}}}
dataset: {path: data, features: {x: standardize, y: standardize}, target: {label: binary}}
task: {kind: tabular}
"""
_LANGUAGE = {"dataset": {"path": "data", "features": {"text": {"encoder": "bytes", "length": 8}}}, "task.kind": "language"}
_RATINGS = {"task.kind": "recommendation"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "train.resize_seconds": ({"train.resize_seconds": 5}, {"train.workers": [1, 4]}),
    "train.balance.kind": ({"train.balance": "auto"}, {"train.workers": 2}),
    "train.balance": ({"train.balance": "auto", "train.workers": 2, "train.strategy": "sharded"}, {"train.strategy": "ddp"}),
    "train.profile.ranks": ({"train.profile.ranks": [0]}, {"train.profile.steps": [50, 60]}),
    "train.profile.memory": ({"train.profile.memory": True}, {"train.profile.steps": [50, 60]}),
    "train.window": ({"train.window": 4, "train.shuffle": False}, {"train.shuffle": True}),
    "train.remainder": ({"train.remainder": "drop", "train.strategy": "federated", "train.clients.by": "x", "train.global_batch": 80},
                        {"train.strategy": "ddp", "train.clients": {}}),
    "train.compression": ({"train.compression": "bf16", "train.strategy": "exact"}, {"train.strategy": "ddp"}),
    "train.compression.rank": ({"train.compression": {"kind": "topk", "rank": 2}}, {"train.compression.kind": "powersgd"}),
    "train.compression.start_step": ({"train.compression": {"kind": "bf16", "start_step": 2}}, {"train.compression.kind": "powersgd"}),
    "train.compression.share": ({"train.compression.share": 0.1}, {"train.compression.kind": "topk"}),
    "train.local_sgd": ({"train.local_sgd.inner_steps": 2}, {"train.strategy": "local_sgd"}),
    "train.clients": ({"train.clients.by": "x", "train.global_batch": 80}, {"train.strategy": "federated"}),
    "train.local_sgd.outer_lr": ({"train.strategy": "local_sgd", "train.local_sgd.outer_lr": 0.7}, {"train.local_sgd.outer": "nesterov"}),
    "train.local_sgd.outer_momentum": (
        {"train.strategy": "local_sgd", "train.local_sgd.outer_momentum": 0.5}, {"train.local_sgd.outer": "nesterov"}),
    "train.clients.delta": (
        {"train.strategy": "federated", "train.clients": {"by": "x", "delta": 1e-6}, "train.global_batch": 80},
        {"train.clients.noise": 1.0, "train.clients.clip": 1.0, "train.clients.weighting": "equal", "train.seed": 5}),
    "train.parallel": ({"train.parallel.offload": True}, {"train.strategy": "sharded"}),
    "train.parallel.schedule": ({"train.strategy": "sharded", "train.parallel.schedule": "ZBVZeroBubble"},
                                {"train.workers": 2, "train.parallel.pipeline": 2}),
    "train.parallel.microbatches": ({"train.strategy": "sharded", "train.parallel.microbatches": 4},
                                    {"train.workers": 2, "train.parallel.pipeline": 2}),
    "train.parallel.reshard_after_forward": (
        {"train.strategy": "sharded", "train.workers": 2, "train.parallel": {"pipeline": 2, "reshard_after_forward": False}},
        {"train.parallel.pipeline": 1}),
    "train.parallel.reduce_every_pass": ({"train.strategy": "sharded", "train.parallel.reduce_every_pass": True}, {"train.accumulate": 2}),
    "train.parameter_server": ({"train.parameter_server.servers": 2}, {"train.strategy": "parameter_server"}),
    "train.parameter_server.staleness": (
        {"train.strategy": "parameter_server", "train.parameter_server.staleness": 4}, {"train.parameter_server.mode": "bounded"}),
    "train.threads_per_shard": ({"train.threads_per_shard": 1}, {"train.strategy": "exact"}),
    "train.momentum": ({"train.momentum": 0.9}, {"train.optimizer": "sgd"}),
    "train.step_epochs": ({"train.step_epochs": 10}, {"train.schedule": "step"}),
    "train.step_factor": ({"train.step_factor": 0.5}, {"train.schedule": "step"}),
    "train.sync_batch_norm": ({"train.sync_batch_norm": True}, {"task.batch_norm": True}),
    "task.batch_norm": ({"task.batch_norm": True, "task.hidden": []}, {"task.hidden": [64, 32]}),
    "task.dropout": ({"task.dropout": 0.1, "task.hidden": []}, {"task.hidden": [64, 32]}),
    "task.embedding": ({"task.embedding": 8}, {"dataset.features.x": "vocabulary"}),
    "task.temperature": ({**_LANGUAGE, "task.temperature": 0.5, "task.sample_tokens": 0}, {"task.sample_tokens": 200}),
    "task.hidden": ({**_RATINGS, "task.hidden": [8]}, {"task.network": "dlrm"}),
    "task.user": ({**_RATINGS, "task.user": ["x"], "task.network": "dlrm"}, {"task.network": "factors"}),
    "task.item": ({**_RATINGS, "task.item": ["x"], "task.network": "dlrm"}, {"task.network": "factors"}),
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
    "endpoint.follow_seconds": (
        {"endpoint.follow_seconds": 1.0, "endpoint.model": "models:/toy/3"}, {"endpoint.model": "models:/toy@champion"}),
}  # fmt: skip
"""By setting: values with which it has no effect, and the remedy."""


def values_with(changes: dict[str, Any]) -> dict[str, Any]:
    values = yaml.safe_load(PIPELINE)
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


def test_every_row_of_the_table_is_tried() -> None:
    assert [use.setting for use in TABLE if not any(fnmatchcase(setting, use.setting) for setting in CASES)] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"train.momentum": 0, "train.compression": "none", "train.sync_batch_norm": False, "train.balance": "equal", "train.local_sgd": {}},
        {"train.strategy": "own:Strategy", "train.compression": "topk", "train.threads_per_shard": 2, "train.clients.by": "x"},
        {"train.strategy": "exact", "train.parameter_server.servers": 2},
    ],
    ids=["asks for nothing", "a strategy of one's own", "exact stands in for servers"],
)
def test_what_asks_for_nothing_or_may_be_used_passes(changes: dict[str, Any]) -> None:
    assert parse(values_with(changes), "x.yaml")


def test_flags_and_files_have_one_rule(tmp_path: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(PIPELINE)
    told = r"^--train.momentum: has no effect while train.optimizer is adamw; set train.optimizer to sgd, or remove momentum \(got 0.5\)$"
    with pytest.raises(ConfigError, match=told):
        load(path, {"train.momentum": 0.5})
    with pytest.raises(ConfigError, match=told):
        from_command_line("jobs/train.py", [str(path), "--train.momentum", "0.5"])
    with pytest.raises(ConfigError, match=r"^--train.balance: has no effect while train.workers is 1; set train.workers to 2 or more"):
        load(path, {"train.balance": "auto"})
    path.write_text(f"{PIPELINE}train: {{momentum: 0.5, window: 2, shuffle: false}}\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert [line.partition(": has")[0] for line in str(refused.value).splitlines()] == [f"{path}: train.window", f"{path}: train.momentum"]


def test_a_config_that_names_every_setting_loads_again() -> None:
    for changes in ({}, {"train.strategy": "local_sgd"}, {"train.optimizer": "sgd", "train.workers": [1, 2]}):
        config = parse(values_with(changes), "x.yaml")
        written = config.model_dump(mode="json", by_alias=True)
        assert parse(written, "run").model_dump() == config.model_dump()
    written["train"]["step_epochs"] = 3
    with pytest.raises(ConfigError, match=r"train\.step_epochs: has no effect"):
        parse(written, "run")
    assert parse(written, "run", recorded=True).train.step_epochs == 3, "a run of before the rule can be verified"
