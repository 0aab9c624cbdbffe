"""How many trials share machines, by CPUs, GPUs and the memory that each is expected to take. No Ray."""

import logging
from pathlib import Path
from typing import Any

import pytest
from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.config.tuning import Tune
from pipelines.tuning import trial_memory
from pipelines.tuning.placement import count_places
from pipelines.tuning.trial_memory import PROCESS_BYTES, largest_model_bytes, model_bytes, rows_bytes, trial_bytes

GIB = 2**30


def machine(cpus: float, gib: float, gpus: float = 0.0) -> dict[str, float]:
    return {"CPU": cpus, "memory": gib * GIB, **({"GPU": gpus} if gpus else {}), "node:10.0.0.1": 1.0}


@pytest.mark.parametrize(
    ("machines", "gib", "train", "most"),
    [
        ([machine(8, 32)], 1, {}, 8),
        ([machine(8, 32)], 5, {}, 6),
        ([machine(8, 32)], 17, {}, 1),
        ([machine(8, 7.5), machine(8, 7.5)], 5, {}, 2),
        ([machine(4, 64), machine(16, 4)], 2, {}, 6),
        ([machine(8, 32)], 1, {"cpus_per_worker": 3}, 2),
        ([machine(8, 32)], 5, {"workers": 2}, 3),
        ([machine(2, 32)], 1, {"workers": 4}, 1),
        ([{"CPU": 4.0}], 100, {}, 4),
        ([], 1, {}, 1),
    ],
)
def test_no_more_trials_begin_than_memory_holds(machines: list[dict[str, float]], gib: float, train: dict[str, Any], most: int) -> None:
    places = count_places(Train(**train), machines, False, int(gib * GIB))
    assert places.most == most
    if "workers" in train:
        assert places.resources == {"memory": 1}, "workers have their own"
    elif machines and "memory" in machines[0]:
        assert places.resources == {"CPU": train.get("cpus_per_worker", 1), "memory": int(gib * GIB)}
    else:
        assert "memory" not in places.resources, "of which this Ray keeps no account"


def test_a_trial_takes_a_gpu_and_memory_of_its_machine() -> None:
    places = count_places(Train(), [machine(8, 32, gpus=4)], True, 10 * GIB)
    assert (places.most, places.resources) == (3, {"CPU": 1, "GPU": 1, "memory": 10 * GIB})
    assert count_places(Train(), [machine(8, 32, gpus=2), machine(64, 512)], True, GIB).most == 2


def test_a_trial_that_no_machine_has_memory_for_is_tried_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pipelines"):
        places = count_places(Train(), [machine(8, 4), machine(8, 6)], False, 20 * GIB)
    assert places.most == 1 and places.resources["memory"] == 6 * GIB, "or it would wait forever"
    assert "need 20.0 GiB, and no machine has more than 6.0 GiB" in caplog.text


def searching(config: Config, space: dict[str, Any]) -> Config:
    return config.model_copy(update={"tune": Tune(space=space)})


def test_a_trial_takes_what_any_training_does_its_rows_and_its_model(tmp_path: Path) -> None:
    config = training(tmp_path, rows=640)
    version = open_dataset(config)
    rows = 640 * 1.5 * (8 * 4 + 4)  # eight features and a label, of four bytes each
    assert 0.8 * 2 * rows <= rows_bytes(config, version) <= 1.3 * 2 * rows
    on_cpu, on_gpu = (trial_bytes(searching(config, {"train.lr": {"log": [0.1, 1]}}), version, on_gpu) for on_gpu in (False, True))
    assert on_gpu == PROCESS_BYTES + rows_bytes(config, version) + model_bytes(config, version, on_gpu=True)
    assert on_cpu == PROCESS_BYTES + rows_bytes(config, version) + model_bytes(config, version) > on_gpu
    limited = training(tmp_path / "limited", rows=640, cache_bytes=1_000, prefetch_bytes=500)
    assert rows_bytes(limited, open_dataset(limited)) == 1_500


def test_a_model_takes_parameters_with_adam_saved_copies_and_activations_of_a_step(tmp_path: Path) -> None:
    config = training(tmp_path, rows=640, task={"hidden": [2_000, 2_000]})
    version = open_dataset(config)
    parameters = 8 * 2_000 + 2_000 * 2_000 + 3 * 2_000
    assert 32 * parameters < model_bytes(config, version) < 1.2 * 32 * parameters
    many_rows = training(tmp_path / "rows", rows=64_000, task={"hidden": [2_000, 2_000]}, global_batch=16_384)
    at_once = model_bytes(many_rows, version)
    in_passes = model_bytes(many_rows.model_copy(update={"train": many_rows.train.model_copy(update={"grad_accum_steps": 8})}), version)
    on_two = model_bytes(many_rows.model_copy(update={"train": many_rows.train.model_copy(update={"workers": 2})}), version)
    assert model_bytes(config, version) < in_passes < on_two < at_once


def test_the_largest_trial_of_the_search_counts(tmp_path: Path) -> None:
    config = training(tmp_path, rows=640)
    version = open_dataset(config)
    space: dict[str, Any] = {
        "task.hidden": {"choice": [[8], [1_000, 1_000], [64]]},
        "task.members": {"int": [1, 8]},
        "task.dropout": {"uniform": [0, 0.5]},
        "train.global_batch": {"choice": [64, 4_096]},
    }
    largest = largest_model_bytes(searching(config, space), version)
    by_name = {name: largest_model_bytes(searching(config, {name: dimension}), version) for name, dimension in space.items()}
    assert largest > max(by_name.values()) > model_bytes(config, version), "values are large together"
    assert by_name["task.dropout"] == model_bytes(config, version)


def test_of_values_that_do_not_go_together_the_others_count(tmp_path: Path) -> None:
    config = training(tmp_path, rows=640)
    version = open_dataset(config)
    space: dict[str, Any] = {"task.batch_norm": {"choice": [True, False]}, "task.members": {"int": [1, 8]}}
    assert largest_model_bytes(searching(config, space), version) >= model_bytes(config, version) > 0


def test_trees_take_their_rows_and_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = training(tmp_path, rows=640, task={"kind": "trees"})
    version = open_dataset(config)
    with caplog.at_level(logging.INFO, "pipelines"):
        assert trial_bytes(searching(config, {"task.leaves": {"int": [2, 31]}}), version, False) == PROCESS_BYTES + rows_bytes(
            config, version
        )
    assert not [record for record in caplog.records if record.name.startswith("pipelines")], "and other tests' threads do not count"


def test_a_model_that_raises_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = training(tmp_path, rows=640)

    def fail(*_: Any) -> None:
        raise RuntimeError("a task of one's own, on fake tensors")

    monkeypatch.setattr(trial_memory, "config_costs", fail)
    assert model_bytes(config, open_dataset(config)) == 0
