"""The layout that `train.parallel: auto` chooses: one in which the run may go on, and whose model is the same."""

from pathlib import Path
from typing import Any

import pytest
from trainings import open_dataset, training

from pipelines.config import Config, parse
from pipelines.errors import ConfigError
from pipelines.planner import at_hand
from pipelines.planner.at_hand import choose_layout, device_hardware


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))


def have(monkeypatch: pytest.MonkeyPatch, device: str, count: int) -> None:
    monkeypatch.setattr(at_hand, "find_devices", lambda settings: (device, count))


def choose(folder: Path, **train: Any) -> tuple[Config, Config]:
    config = training(folder, rows=4_000, parallel="auto", global_batch=512, task={"hidden": [64]}, **train)
    chosen = choose_layout(config, open_dataset(config)).config
    assert chosen.train.parallel.kind == "fixed" and chosen.model_identity == config.model_identity
    return config, parse(chosen.model_dump(mode="json", by_alias=True, exclude_unset=True), "toy")


@pytest.mark.parametrize("strategy", ["ddp", "exact", "sharded"])
@pytest.mark.parametrize("count", [1, 4, 6])
def test_workers_divide_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, count: int) -> None:
    have(monkeypatch, "", count)
    config, chosen = choose(tmp_path, strategy=strategy)
    assert count % chosen.train.max_workers == 0 and chosen.train.strategy.kind == strategy
    assert chosen.train.shards == config.train.shards and chosen.train.grad_accum_steps == config.train.grad_accum_steps


def test_a_layout_is_chosen_for_the_version_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of plain Parquet, which the config does not describe."""
    have(monkeypatch, "", 2)
    config = training(tmp_path, rows=4_000, parallel="auto", global_batch=512)
    version = open_dataset(config)
    elsewhere = config.model_copy(update={"dataset": config.dataset.model_copy(update={"path": str(tmp_path / "absent")})})
    expected, chosen = (choose_layout(of_config, version).candidates for of_config in (config, elsewhere))
    assert chosen == expected and chosen[0].hours > 0


def test_more_devices_are_used_where_they_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "", 8)
    config = training(tmp_path, rows=40_000, parallel="auto", global_batch=8_192, task={"hidden": [1_024] * 4})
    assert choose_layout(config, open_dataset(config)).config.train.max_workers == 8
    _, small = choose(tmp_path / "small")
    assert small.train.max_workers < 8


def test_workers_that_are_named_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "", 8)
    assert choose(tmp_path, workers=2)[1].train.max_workers == 2


def test_settings_of_the_strategy_that_decide_the_model_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "NVIDIA H200", 4)
    _, chosen = choose(tmp_path, strategy={"kind": "ddp", "compression": "bf16"}, workers=4)
    assert chosen.train.strategy_as(type(chosen.train.strategy)).compression.kind == "bf16"


def test_a_strategy_without_layouts_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "", 2)
    with pytest.raises(ConfigError, match=r"no layout of strategy local_sgd fits 2 cores; set train.parallel to fixed"):
        choose(tmp_path, strategy="local_sgd")


@pytest.mark.parametrize("device", ["Unknown 9000", "NVIDIA L40S", "NVIDIA RTX A1000"])
def test_a_gpu_without_a_data_sheet_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Also where its name begins as that of another."""
    have(monkeypatch, device, 2)
    with pytest.raises(ConfigError, match=rf"{device} has no data sheet; write .*NAME.yaml, or set it to fixed"):
        choose(tmp_path)


@pytest.mark.parametrize(
    ("device", "sheet"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("A100-40G", "a100_40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA_TESLA_V100", "v100"),
        ("H100", "h100"),
        ("", "cpu2"),
    ],
)
def test_the_data_sheet_of_a_device(device: str, sheet: str) -> None:
    assert device_hardware(device, 2).name == sheet


def test_a_range_of_workers_is_no_choice_of_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parallel is auto, which chooses a number of workers, and workers is \[1, 4\]; remove one"):
        training(tmp_path, parallel="auto", workers=[1, 4])
    training(tmp_path, parallel="auto")
    training(tmp_path, workers=[1, 4])
