"""Every kind of task under `exact`: the same bits for one worker and two, and through a stop in the middle of an epoch."""

from pathlib import Path

import pytest
import torch
from groups import run_group
from task_cases import CASES, create_task, random_batch
from trainings import StopsAfter, training, write_once
from versions import write_version

from pipelines.config import Config
from pipelines.data.versions.schema import ROW_KEYS
from pipelines.data.versions.versions import open_version
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.usefixtures("one_thread")]

ROWS = {"train": 32, "validation": 8, "test": 8}
EPOCH_STEPS = 4


def write_rows(task: Task, folder: Path) -> None:
    batch = {name: values.numpy() for name, values in random_batch(task, sum(ROWS.values())).items() if name != ROW_KEYS}
    splits, first = {}, 0
    for split, rows in ROWS.items():
        splits[split] = [{name: values[first : first + rows] for name, values in batch.items()}]
        first += rows
    cardinality = {column.name: column.cardinality for column in task.data.columns if column.cardinality}

    def write(path: Path) -> None:
        write_version(path, splits, target=task.data.columns[-1].name, cardinality=cardinality)

    write_once(folder, write)


def train(context: WorkerContext, name: str, config: Config, run: str, stop_after: int | None = None) -> str:
    """The digest of the weights after two epochs, or after so many steps."""
    torch.manual_seed(0)
    task = create_task(name)
    folder = Path(config.train.storage) / name
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(task, folder / "version")
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder / run)), context, 2)
    Loop(config, open_version(str(folder / "version")), task, strategy, checkpoints, StopsAfter(stop_after)).run()
    return model_digest(strategy.model.state_dict())


def train_all(context: WorkerContext, home: Path, run: str, stop_after: int | None = None) -> dict[str, str]:
    config = training(home, rows=64, strategy="exact", shards=4, global_batch=ROWS["train"] // EPOCH_STEPS, epochs=2)
    return {name: train(context, name, config, run, stop_after) for name in CASES}


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By case and task."""
    home = tmp_path_factory.mktemp("tasks")
    together, _ = run_group(2, home / "group", train_all, home, "together")
    assert not isinstance(together, Exception), together
    alone, stopped, resumed = (
        train_all(WorkerContext(), home, run, stop_after)
        for run, stop_after in (("alone", None), ("stopped", EPOCH_STEPS + 2), ("stopped", None))
    )
    return {"alone": alone, "together": together, "stopped": stopped, "resumed": resumed}


@pytest.mark.parametrize("name", CASES)
def test_p5_exact_has_the_same_bits_for_two_workers_and_through_a_stop(name: str, digests: dict[str, dict[str, str]]) -> None:
    expected = digests["alone"][name]
    assert digests["together"][name] == expected
    assert digests["stopped"][name] != expected
    assert digests["resumed"][name] == expected
