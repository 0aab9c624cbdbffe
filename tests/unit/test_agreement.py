"""Workers compute updates for themselves: bitwise the same, and if they ever are not, the next checkpoint says so."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from groups import run_group
from torch import Tensor, nn
from trainings import open_dataset, training

from pipelines.config import Config, load
from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, DriftError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Data
from pipelines.tasks.bind import build_task
from pipelines.tasks.tabular import Tabular
from pipelines.train.checkpoint.checkpoint_record import check_agreement
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.ddp.ddp import DataParallel
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

KINDS: dict[str, Any] = {
    "none": "none", "bf16": "bf16", "powersgd 2": {"kind": "powersgd", "rank": 2}, "powersgd 4": {"kind": "powersgd", "rank": 4},
    "topk": "topk",
}  # fmt: skip
COLUMNS = (
    TensorColumn(name="x", dtype="float32", shape=(192,)),
    TensorColumn(name="label", dtype="int64", role="target", cardinality=10),
)
WIDE = Tabular(Settings(hidden=(256, 128), batch_norm=True), Data(COLUMNS, tuple("abcdefghij")))
"""Its first layer has enough weights for a sum over them to be divided among threads."""
WORKERS, SAVE_STEPS, PARTS_AT = 3, 5, 7
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": {"kind": "ddp", "compression": "topk"}},
    "exact": {"strategy": "exact"},
    "local_sgd": {"strategy": {"kind": "local_sgd", "replicas": 3, "inner_steps": 2}},
    "sharded": {"strategy": {"kind": "sharded", "replicate": "auto", "shard": 1}},
}


def trained_on_other_threads(context: WorkerContext) -> dict[str, str]:
    """The digest of this worker's weights after a few steps of `ddp`, by the kind of compression."""
    torch.set_num_threads(context.rank + 1)
    results = {}
    for name, kind in KINDS.items():
        settings = Train.model_validate(
            {"global_batch": 48, "lr": 0.05, "clip_norm": 0.1, "precision": "fp32", "strategy": {"kind": "ddp", "compression": kind}}
        )
        strategy = DataParallel(settings, WIDE, _first_model, context)
        for number in range(6):
            generator = torch.Generator().manual_seed(10 * number + context.rank)
            rows = {"x": torch.randn(16, 192, generator=generator), "label": torch.randint(10, (16,), generator=generator)}
            strategy.step(rows, number, 0.05, Flags())
        strategy.sync_buffers()
        results[name] = model_digest(dict(strategy.model.state_dict()))
    return results


def _first_model() -> nn.Module:
    torch.manual_seed(0)
    return WIDE.model()


class Nudges(Hooks):
    """Before step PARTS_AT, counted from 0, it changes the last bit of a weight on rank 1."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def step(self, number: int) -> None:
        if number == PARTS_AT and self._strategy.mesh.context.rank == 1:
            for values in _shared_memory_tensors(self._strategy):
                values.flatten()[0] = torch.nextafter(values.flatten()[0], values.new_tensor(torch.inf))


def _shared_memory_tensors(strategy: Strategy) -> list[Tensor]:
    """The memory of `layers.2.weight` wherever this worker holds what is common to all."""
    if strategy.mesh.context.world_size == 1:
        return []
    outer = getattr(strategy, "_outer", None)
    model = outer.model_state if outer is not None else None
    tensors = dict(zip(model.names, model.parameters, strict=True)) if model is not None else dict(strategy.model.named_parameters())
    values = tensors["layers.2.weight"].detach()
    return [values.to_local() if hasattr(values, "to_local") else values]


def endings_after_change(context: WorkerContext, home: str) -> dict[str, Any]:
    """The end of a training, by strategy, in which one worker's weight has been changed; and a continuation with one worker."""
    results = {}
    for name, settings in STRATEGIES.items():
        config = _config(Path(home), **settings)
        directory = RunDirectory(f"{home}/{name}")
        task = build_task(config.task, open_dataset(config).manifest)
        strategy = create_strategy(config.train, task, context)
        checkpoints = Checkpoints(directory, context, keep=9)
        try:
            Loop(config, open_dataset(config), task, strategy, checkpoints, Nudges(strategy)).run()
        except DriftError as error:
            results[name] = str(error), sorted(record.step for _, record in checkpoints._complete())
    return results


def _config(home: Path, **settings: Any) -> Config:
    return training(
        home, rows=720, uri="sqlite:///unused", epochs=1, shards=6, global_batch=60, checkpoint={"every_steps": SAVE_STEPS}, **settings
    )


def test_workers_with_other_numbers_of_threads_have_the_same_weights(tmp_path: Path) -> None:
    first, *other_answers = run_group(WORKERS, tmp_path, trained_on_other_threads)
    assert set(first) == set(KINDS), first
    for other in other_answers:
        assert other == first


def test_workers_that_part_end_the_run_with_an_error_that_names_where(tmp_path: Path) -> None:
    _config(tmp_path)
    first, *other_answers = run_group(WORKERS, tmp_path / "group", endings_after_change, str(tmp_path))
    assert other_answers == [first] * 2, "all workers raise it"
    for name in STRATEGIES:
        message, saved = first[name]
        assert saved == [SAVE_STEPS], "a checkpoint on which workers do not agree is not completed"
        assert f"after step {2 * SAVE_STEPS}, model.layers.2.weight" in message, message
        assert f"on workers 0, 2 than on worker 1 (after step {SAVE_STEPS} all was equal)" in message
        assert "damaged" not in message and "restore" not in message
        assert f"or with --train.workers 1, the same command goes on from step {SAVE_STEPS}" in message
    config = _config(tmp_path, **STRATEGIES["exact"])
    task = build_task(config.task, open_dataset(config).manifest)
    checkpoints = Checkpoints(RunDirectory(f"{tmp_path}/exact"), WorkerContext(), keep=9)
    trained = Loop(config, open_dataset(config), task, create_strategy(config.train, task, WorkerContext()), checkpoints, Hooks()).run()
    assert (trained.finished, trained.rows) == (True, 720)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"workers": 2, "balance": "auto"}, "--train.workers 1 --train.balance equal"),
        ({"workers": 2, "strategy": {"kind": "sharded", "replicate": 2, "shard": 1}}, "--train.workers 1 --train.strategy.replicate 1"),
        ({"workers": 4, "strategy": {"kind": "sharded", "tensor": 2}}, "--train.workers 1 --train.strategy.tensor 1"),
        (
            {"workers": 8, "strategy": {"kind": "sharded", "pipeline": 2, "context": 2, "shard": "auto"}},
            "--train.workers 1 --train.strategy.pipeline 1 --train.strategy.context 1",
        ),
        (
            {"workers": 4, "strategy": {"kind": "sharded", "pipeline": 2, "microbatches": 4, "schedule": "Interleaved1F1B"}},
            "--train.workers 1 --train.strategy.pipeline 1",
        ),
    ],
    ids=["balance", "replicate", "tensor", "pipeline and context", "stages"],
)
def test_the_same_command_with_these_flags_goes_on(tmp_path: Path, settings: dict[str, Any], flags: str) -> None:
    config = training(tmp_path, **settings)
    assert config.train.strategy.flags_for_one_worker(config.train) == flags
    with pytest.raises(DriftError, match=f"or with {flags}, the same command goes on from the start$"):
        check_agreement([{"w": "1"}, {"w": "2"}], 10, None, flags)
    pairs = re.findall(r"--(\S+) (\S+)", flags)
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    (file := tmp_path / "x.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError):
        load(file, {"train.workers": 1})
    assert load(file, {name: yaml.safe_load(value) for name, value in pairs}).train.max_workers == 1


def test_all_that_workers_hold_alike_is_compared() -> None:
    alike = {"model.w": "1", "optimizer.lr": "0.1"}
    check_agreement([alike, {**alike, "replicas.1": "9"}, {"part[0:4]": "1"}, {"part[4:8]": "2"}], 10, None)
    with pytest.raises(DriftError, match=r"after step 10, optimizer.lr has another value on workers 0, 2 than on worker 1 \(nothing was"):
        check_agreement([alike, {**alike, "optimizer.lr": "0.2"}, alike], 10, None)
    with pytest.raises(DriftError, match=r"part\[0:4\] has another value on worker 1 than on worker 2 .*goes on from step 5"):
        check_agreement([{}, {"part[0:4]": "1"}, {"part[0:4]": "2"}], 10, 5)
