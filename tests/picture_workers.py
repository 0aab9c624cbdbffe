"""One epoch of a task over pictures by one worker and by two, for tests that compare them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.versions import open_version
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Task
from pipelines.train.evaluate import Evaluation
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import Mesh, WorkerContext

MakeTask = Callable[[], Task]
CASES = {"exact": {"strategy": "exact"}, "ddp": {"strategy": "ddp"}, "ddp, accumulated": {"strategy": "ddp", "grad_accum_steps": 2}}
SIZES = (1, 2)


def train_all(rank: int, folder: str, make_task: MakeTask) -> None:
    """Train every case by each number of workers; run in as many processes as the most."""
    torch.set_num_threads(1)
    for case in CASES:
        for world_size in SIZES:
            if rank < world_size:
                rendezvous = f"file://{folder}/rendezvous-{case}-{world_size}"
                dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size)
                train(WorkerContext(rank, world_size), folder, case, make_task())
                dist.destroy_process_group()


def train(context: WorkerContext, folder: str, case: str, task: Task) -> None:
    """One epoch; worker 0 writes the weights' digest, the losses of all steps, and the metrics of the validation."""
    settings = Train.model_validate({"shards": 4, "global_batch": 8, "remainder": "keep", "lr": 0.01, **CASES[case]})
    torch.manual_seed(0)
    version = open_version(f"{folder}/version")
    strategy = create_strategy(settings, task, context)
    order = Order(settings.shards, settings.global_batch, settings.seed, remainder=settings.remainder)
    loader = Loader(version, "train", order, Mesh(context).worker_shards(settings.shards), row_keys=task.draws)
    losses = []
    for number, batch in enumerate(strategy.batches(loader)):
        result = strategy.step(batch, number, 0.01, Flags())
        losses.append(float(result.loss_sum / result.weight))
    metrics = Evaluation(settings, version, "validation", task, strategy)() or {}
    if context.rank == 0:
        np.save(f"{folder}/{case}-{context.world_size}.npy", np.array([*losses, *(float(value) for value in metrics.values())]))
        Path(f"{folder}/{case}-{context.world_size}").write_text(model_digest(strategy.model.state_dict()))
