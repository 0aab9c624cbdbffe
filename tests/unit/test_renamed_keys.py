"""Yesterday's keys of `train`: a file gets an error with today's lines, and what a run has recorded is read, under the same identity."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.config import load, parse
from pipelines.config.messages.renamed_keys import from_recorded
from pipelines.config.pipeline import Config
from pipelines.errors import ConfigError
from pipelines.train.strategies import strategy_class

PIPELINE = """
name: toy
source: {tables: {points: {format: parquet, path: points}}}
dataset: {path: data, features: {x: standardize, y: standardize}, target: {label: binary}}
task: {kind: tabular}
"""
RECORDED = yaml.safe_load("""
{workers: 1, use_gpu: auto, cpus_per_worker: 1, max_failures: 3, balance: {kind: equal, leave_out: false}, resize_seconds: 60.0,
timeout_seconds: 300.0, storage: runs, checkpoint: {every_steps: null, every_seconds: null, keep: 2},
profile: {steps: null, ranks: [0], memory: false}, seed: 0, shards: 8, global_batch: 512, window: 4, shuffle: true, remainder: drop,
cache_bytes: 1073741824, prefetch_bytes: 268435456, strategy: ddp,
compression: {kind: none, rank: 16, start_step: 0, share: 0.01},
local_sgd: {outer: average, outer_lr: 0.7, outer_momentum: 0.9, replicas: 4, inner_steps: 16, deltas: fp32},
clients: {outer: average, outer_lr: 0.7, outer_momentum: 0.9, by: '', per_round: 10, local_epochs: 5, rounds_per_epoch: 1,
weighting: rows, proximal: 0.0, clip: null, noise: 0.0, delta: 1.0e-05},
parallel: {replicate: 1, shard: auto, tensor: 1, pipeline: 1, context: 1, schedule: 1F1B, microbatches: auto,
reshard_after_forward: true, reduce_every_pass: false, activation_checkpointing: none, offload: false},
parameter_server: {servers: 1, mode: sync, staleness: null, backups: 0}, threads_per_shard: 1,
epochs: 5, max_steps: null, accumulate: 1, optimizer: adamw, lr: 0.001, momentum: 0.9, weight_decay: 0.01, schedule: constant,
warmup: 0.0, step_epochs: 10, step_factor: 0.1, clip_norm: null, precision: auto, compile: false, sync_batch_norm: false, monitor: '',
early_stopping: null, init_from: ''}
""")
"""`train` as a run with default settings recorded it before strategies had sections."""
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ddp": ({}, {"kind": "ddp"}, "890a86cf291beb60"),
    "ddp, compressed": (
        {"compression": {"kind": "powersgd", "rank": 8}},
        {"kind": "ddp", "compression": {"kind": "powersgd", "rank": 8}},
        "7b3f8bbfb6fb93da",
    ),
    "exact": ({"strategy": "exact", "threads_per_shard": 2}, {"kind": "exact", "threads_per_shard": 2}, "461feffbce41e44b"),
    "local_sgd": (
        {
            "strategy": "local_sgd",
            "local_sgd": {"replicas": 2, "inner_steps": 4, "outer": "nesterov", "outer_lr": 0.5, "deltas": "int8"},
            "threads_per_shard": 2,
        },
        {
            "kind": "local_sgd", "replicas": 2, "inner_steps": 4, "outer": "nesterov", "outer_lr": 0.5, "deltas": "int8",
            "threads_per_shard": 2,
        },
        "2bf006da773b6052",
    ),
    "federated": (
        {"strategy": "federated", "clients": {"by": "x", "per_round": 8, "local_epochs": 2}, "threads_per_shard": 2},
        {"kind": "federated", "client_column": "x", "per_round": 8, "local_epochs": 2, "threads_per_shard": 2},
        "81e8dd6796c59a58",
    ),
    "sharded": (
        {"strategy": "sharded", "workers": 4, "parallel": {"shard": 2, "tensor": 2, "offload": True}},
        {"kind": "sharded", "shard": 2, "tensor": 2, "offload": True},
        "965499cade3a6a82",
    ),
    "parameter_server, bounded": (
        {"strategy": "parameter_server", "parameter_server": {"servers": 2, "mode": "bounded", "staleness": 3}},
        {"kind": "parameter_server", "servers": 2, "mode": "bounded", "staleness": 3},
        "d324c52de90c5d99",
    ),
    "parameter_server, sync": (
        {"strategy": "parameter_server", "parameter_server": {"servers": 2}, "threads_per_shard": 3},
        {"kind": "parameter_server", "servers": 2, "threads_per_shard": 3},
        "bb4e897347f49d53",
    ),
}  # fmt: skip
"""Yesterday's settings of `train`, today's section, and the identity that such a run has had: 16 digits of it, as in MLflow."""


def pipeline_values(train: dict[str, Any]) -> dict[str, Any]:
    return {**yaml.safe_load(PIPELINE), "train": deepcopy(train)}


def record_values(changes: dict[str, Any]) -> dict[str, Any]:
    """What a run with these changes has recorded: sections with all their settings."""
    sections = {name: {**RECORDED[name], **value} if isinstance(value, dict) else value for name, value in changes.items()}
    return pipeline_values({**RECORDED, **sections})


def today(case: str) -> Config:
    before, section, _ = CASES[case]
    workers = {name: value for name, value in before.items() if name == "workers"}
    return parse(pipeline_values({**workers, "strategy": section}), "x.yaml")


@pytest.mark.parametrize("case", CASES)
def test_what_a_run_has_recorded_is_read_and_its_identity_has_not_changed(case: str) -> None:
    before, _, identity = CASES[case]
    values = record_values(before)
    config = parse(deepcopy(values), "run 1f", recorded=True)
    assert config.train.model_dump() == today(case).train.model_dump()
    assert config.model_identity[:16] == today(case).model_identity[:16] == identity
    reparsed = parse(config.model_dump(mode="json", by_alias=True), "run 1f", recorded=True)
    assert reparsed.train.model_dump() == config.train.model_dump()
    assert from_recorded(from_recorded(values)) == from_recorded(values)


@pytest.mark.parametrize("case", [case for case, (before, _, _) in CASES.items() if before])
def test_yesterday_s_keys_are_an_error_with_today_s_lines(case: str) -> None:
    before, section, _ = CASES[case]
    with pytest.raises(ConfigError) as refused:
        parse(pipeline_values(before), "x.yaml")
    first, *lines = str(refused.value).splitlines()
    old = [name for name in before if name not in ("strategy", "workers")]
    named = ", ".join(f"train.{name}" for name in RECORDED if name in old)
    assert first.startswith(
        f"x.yaml: {named}: strategies have their settings in train.strategy; under train, write these lines for strategy"
    )
    pasted = yaml.safe_load("\n".join(["train:", *lines]))["train"]
    workers = {name: value for name, value in before.items() if name == "workers"}
    assert parse(pipeline_values({**workers, **pasted}), "x.yaml").train.strategy.model_dump() == today(case).train.strategy.model_dump()
    assert pasted["strategy"] == section


@pytest.mark.parametrize(
    ("flag", "value", "new_key"),
    [
        ("train.local_sgd.replicas", 2, "train.strategy.replicas"),
        ("train.clients.by", "x", "train.strategy.client_column"),
        ("train.parallel.shard", 2, "train.strategy.shard"),
        ("train.parameter_server.servers", 2, "train.strategy.servers"),
        ("train.compression", "bf16", "train.strategy.compression"),
        ("train.compression.kind", "bf16", "train.strategy.compression.kind"),
        ("train.threads_per_shard", 2, "train.strategy.threads_per_shard"),
    ],
)
def test_yesterday_s_flags_are_an_error_with_today_s(tmp_path: Path, flag: str, value: Any, new_key: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(PIPELINE)
    with pytest.raises(ConfigError) as refused:
        load(path, {flag: value})
    assert str(refused.value) == f"--{flag}: strategies have their settings in train.strategy; write --{new_key} instead"


STEPS = {"train.schedule": "step", "train.epochs": 20}
RENAMED: dict[str, tuple[Any, str]] = {
    "train.accumulate": (2, "train.grad_accum_steps"),
    "train.window": (7, "train.shuffle_window"),
    "train.step_factor": (0.5, "train.lr_gamma"),
    "dataset.carried": ({"z": "label"}, "dataset.passthrough"),
    "export.rows_at_once": (8, "export.max_batch_rows"),
    "endpoint.rows_at_once": (8, "endpoint.max_batch_rows"),
}


@pytest.mark.parametrize("old", RENAMED)
def test_a_key_with_another_name_is_an_error_with_that_name(tmp_path: Path, old: str) -> None:
    value, new = RENAMED[old]
    (section, before), after = old.split("."), new.partition(".")[2]
    values = yaml.safe_load(PIPELINE)
    values[section] = {**values.get(section, {}), before: value}
    with pytest.raises(ConfigError) as refused:
        parse(deepcopy(values), "x.yaml")
    assert str(refused.value) == f"x.yaml: {old}: is called {new} now; rename it"
    path = tmp_path / "x.yaml"
    path.write_text(PIPELINE)
    with pytest.raises(ConfigError, match=rf"^--{old}: is called {new} now; rename it$"):
        load(path, {old: value})
    read = parse(values, "run 1f", recorded=True)
    assert getattr(getattr(read, section), after) == getattr(getattr(load(path, STEPS | {new: value}), section), after)


def test_identities_have_the_names_of_before() -> None:
    """The digests are those from before the names, as in manifests and in MLflow."""
    train = {"accumulate": 2, "window": 7, "schedule": "step", "step_factor": 0.5}
    assert parse(record_values(train), "run 1f", recorded=True).model_identity[:16] == "0410f85e5153895e"
    values = yaml.safe_load(PIPELINE)
    values["dataset"]["passthrough"] = {"z": "label"}
    assert [*parse(values, "x.yaml").data_identity["dataset"]][-3:] == ["carried", "part_bytes", "row_group_bytes"]
    assert "carried" not in parse(yaml.safe_load(PIPELINE), "x.yaml").data_identity["dataset"]


@pytest.mark.parametrize("strategy", ["gone.strategy:Gentle", {"kind": "gone.settings:Gentle", "steps": 100}, {"kind": "gone"}])
def test_a_recorded_strategy_that_is_not_here_can_be_read_and_not_trained(strategy: Any) -> None:
    values = record_values({"strategy": strategy}) if isinstance(strategy, str) else pipeline_values({"strategy": strategy})
    config = parse(deepcopy(values), "run 1f", recorded=True)
    reparsed = parse(config.model_dump(mode="json", by_alias=True), "run 1f", recorded=True)
    assert reparsed.train.model_dump() == config.train.model_dump()
    with pytest.raises(ConfigError, match=r"train.strategy: ('gone.*' cannot be imported: |must be one of ddp, exact, )"):
        strategy_class(config.train)
    if isinstance(strategy, dict):
        with pytest.raises(ConfigError, match=r"^x.yaml: train.strategy.kind: ('gone.*' cannot be imported: |must be one of ddp, exact, )"):
            parse(values, "x.yaml")


@pytest.mark.parametrize(
    ("train_line", "flags", "expected"),
    [
        ("", {"train.strategy": "exact"}, {"kind": "exact", "threads_per_shard": 1}),
        ("", {"train.strategy.compression": "bf16"}, {"kind": "ddp"}),
        ("", {"train.strategy.kind": "local_sgd", "train.strategy.replicas": 2}, {"kind": "local_sgd", "replicas": 2}),
        ("strategy: exact", {"train.strategy.threads_per_shard": 2}, {"kind": "exact", "threads_per_shard": 2}),
        ("strategy: {kind: local_sgd, replicas: 8}", {"train.strategy.inner_steps": 2}, {"replicas": 8, "inner_steps": 2}),
        ("strategy: {kind: local_sgd, replicas: 8}", {"train.strategy": "exact"}, {"kind": "exact"}),
        ("strategy: ddp", {"train.strategy.threads_per_shard": 3, "train.strategy": "exact"}, {"kind": "exact", "threads_per_shard": 3}),
    ],
)
def test_flags_name_a_strategy_or_settings_of_the_one_in_the_file(
    tmp_path: Path, train_line: str, flags: dict[str, Any], expected: dict[str, Any]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{PIPELINE}train: {{{train_line}}}\n")
    strategy = load(path, flags).train.strategy.model_dump()
    assert {name: strategy[name] for name in expected} == expected
