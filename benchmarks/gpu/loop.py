"""One process of the GPU benchmark: runs our loader, strategy ddp and a task step by step, without Ray and MLflow."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.train.cases import Case, case_config
from pipelines.config import Config
from pipelines.data.loader import Batch, Loader
from pipelines.data.versions.versions import open_version
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.train.mesh import Mesh
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.state import train_order
from pipelines.train.step_statistics import Flags
from pipelines.train.strategies import create_strategy

PROBE_BYTES = 64 * 2**20
PROBES = 20


@dataclass(frozen=True)
class Variant:
    """Settings with which a case is trained."""

    precision: str
    compiled: bool = False


@dataclass(frozen=True)
class Measured:
    """Measurements, over all workers unless stated otherwise."""

    rows_per_second: float
    data_wait_fraction: float
    flops_per_row: float
    """Of forward and backward pass."""
    skipped_steps: int
    """Steps that the fp16 scaler skipped."""
    loss: float
    peak_bytes: int
    """Peak of one worker's device memory."""


def join(rank: int, world_size: int, rendezvous: str) -> WorkerContext:
    """Join the process group, over NCCL if there are GPUs, else over Gloo."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", init_method=rendezvous, rank=rank, world_size=world_size)
    return WorkerContext(rank, world_size, device)


def all_reduced_bytes_per_second(context: WorkerContext) -> float:
    """The speed of an all-reduce over the workers, whose result is verified."""
    values = torch.empty(PROBE_BYTES // 4, device=context.device)
    expected = context.world_size * (context.world_size + 1) / 2
    for probe in range(PROBES + 1):
        if probe == 1:  # the first one creates the connections
            _synchronise(context)
            started = time.perf_counter()
        values.fill_(context.rank + 1)
        dist.all_reduce(values)
    _synchronise(context)
    seconds = time.perf_counter() - started
    if not bool((values == expected).all()):
        raise RuntimeError(f"an all-reduce over {context.world_size} workers gave {values[0].item()}; it must be {expected}")
    return PROBES * PROBE_BYTES / seconds


def measure(case: Case, variant: Variant, folder: Path, context: WorkerContext) -> Measured:
    """Train on the version in `folder`: the case's warm-up, and then its measured steps."""
    config = apply_variant(case_config(case, folder), variant, context.world_size)
    version = open_version(config.dataset.path)
    task = build_task(config.task, version.manifest)
    settings = config.train
    strategy = create_strategy(settings, task, context)
    loader = Loader(
        version, "train", train_order(config), Mesh(context).worker_shards(settings.shards), device=context.device, cache_bytes=0
    )
    flops = _flops_per_row(task, next(iter(loader)))
    step, started, waited, sums = 0, 0.0, 0.0, []
    while step < case.warm_up + case.steps:
        for batch in strategy.batches(loader):
            if step == case.warm_up:
                _synchronise(context)
                started, waited = time.perf_counter(), loader.wait_seconds
            result = strategy.step(batch, step, settings.lr, Flags())
            sums.append(torch.stack([value.double() for value in (result.grad_norm, result.loss_sum, result.weight)]))
            step += 1
            if step == case.warm_up + case.steps:
                break
    _synchronise(context)
    seconds = time.perf_counter() - started
    read = torch.stack(sums[case.warm_up :]).cpu()
    return Measured(
        rows_per_second=case.steps * case.global_batch / seconds,
        data_wait_fraction=(loader.wait_seconds - waited) / seconds,
        flops_per_row=flops,
        skipped_steps=int((~read[:, 0].isfinite()).sum()),
        loss=float(read[-1, 1] / read[-1, 2]),
        peak_bytes=torch.cuda.max_memory_allocated(context.device) if context.device.type == "cuda" else 0,
    )


def apply_variant(config: Config, variant: Variant, workers: int) -> Config:
    changes = {"precision": variant.precision, "compile": variant.compiled, "workers": workers}
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def _flops_per_row(task: Task, batch: Batch) -> float:
    """FLOPs of matrix products and convolutions, forward and backward, counted on one or two rows."""
    few = {name: values[:2].cpu() for name, values in batch.items()}
    model = task.model()
    with FlopCounterMode(display=False) as counter:
        task.loss(model, few)[0].backward()
    return counter.get_total_flops() / len(next(iter(few.values())))


def _synchronise(context: WorkerContext) -> None:
    if context.device.type == "cuda":
        torch.cuda.synchronize(context.device)
