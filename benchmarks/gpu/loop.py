"""One process of the GPU benchmark: runs our loader, the config's strategy and a task step by step, without Ray and MLflow."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, AdamW
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.models import Model, Variant
from pipelines.config.train.train import Train
from pipelines.data.loader import Batch, Loader
from pipelines.data.versions.versions import open_version
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.train.passes import choose_precision
from pipelines.train.run_context import train_order
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import Mesh, WorkerContext

PROBE_BYTES = 64 * 2**20
PROBES = 20


@dataclass(frozen=True)
class Measured:
    """Measurements, over all workers unless stated otherwise."""

    rows_per_second: float
    bare_rows_per_second: float
    """Of a script by hand."""
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
            _synchronise(context.device)
            started = time.perf_counter()
        values.fill_(context.rank + 1)
        dist.all_reduce(values)
    _synchronise(context.device)
    seconds = time.perf_counter() - started
    if not bool((values == expected).all()):
        raise RuntimeError(f"an all-reduce over {context.world_size} workers gave {values[0].item()}; it must be {expected}")
    return PROBES * PROBE_BYTES / seconds


def measure(model: Model, variant: Variant, folder: Path, context: WorkerContext) -> Measured:
    """Train on the version in `folder`: the model's warm-up, and then its measured steps."""
    config = variant.apply(model.config(folder), context.world_size)
    version, settings = open_version(config.dataset.path), config.train
    task = build_task(config.task, version.manifest)
    owned_shards = Mesh(context).worker_shards(settings.shards)
    loader = Loader(
        version,
        "train",
        train_order(config),
        owned_shards,
        device=context.device,
        cache_bytes=settings.cache_bytes,
        threads=settings.cpus_per_worker,
        row_keys=task.draws,
    )
    if context.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(context.device)
    batch = {name: values.clone() for name, values in next(iter(loader)).items()}
    seconds, waited_seconds, sums = _take_steps(create_strategy(settings, task, context), loader, settings.lr, model)
    return Measured(
        rows_per_second=model.steps * settings.global_batch / seconds,
        peak_bytes=torch.cuda.max_memory_allocated(context.device) if context.device.type == "cuda" else 0,
        bare_rows_per_second=bare_rows_per_second(task, batch, settings, model, context),
        data_wait_fraction=waited_seconds / seconds,
        flops_per_row=_flops_per_row(task, batch),
        skipped_steps=int((~sums[:, 0].isfinite()).sum()),
        loss=float(sums[-1, 1] / sums[-1, 2]),
    )


def _take_steps(strategy: Strategy, loader: Loader, rate: float, model: Model) -> tuple[float, float, Tensor]:
    """Seconds of the measured steps, and how many of them waited for data; and of each its gradient's norm, sum of losses and weight."""
    device = strategy.mesh.context.device
    step, started, waited, sums = 0, 0.0, 0.0, []
    while step < model.warm_up + model.steps:
        for batch in strategy.batches(loader):
            if step == model.warm_up:
                _synchronise(device)
                started, waited = time.perf_counter(), loader.wait_seconds
            result = strategy.step(batch, step, rate, Flags())
            sums.append(torch.stack([value.double() for value in (result.grad_norm, result.loss_sum, result.weight)]))
            step += 1
            if step == model.warm_up + model.steps:
                break
    _synchronise(device)
    return time.perf_counter() - started, loader.wait_seconds - waited, torch.stack(sums[model.warm_up :]).cpu()


def bare_rows_per_second(task: Task, batch: Batch, settings: Train, measured: Model, context: WorkerContext) -> float:
    """The speed of a script as one would write it by hand: the same model and optimizer, in DistributedDataParallel if there are several
    workers. It takes the same rows at every step, which are on the device, logs nothing and saves nothing."""
    device, passes, precision = context.device, settings.grad_accum_steps, choose_precision(settings.precision, context.device)
    torch.manual_seed(0)
    model: nn.Module = _Loss(task).to(device)
    optimizer = {"adam": Adam, "adamw": AdamW}[settings.optimizer](
        model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
    )
    if settings.compile:
        model = torch.compile(model)  # type: ignore[assignment]
    if context.world_size > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    scaler = torch.amp.GradScaler(device.type, enabled=precision.has_loss_scale)
    parts = [{name: values.tensor_split(passes)[number] for name, values in batch.items()} for number in range(passes)]
    for step in range(measured.warm_up + measured.steps):
        if step == measured.warm_up:
            _synchronise(context.device)
            started = time.perf_counter()
        for number, part in enumerate(parts):
            is_last = number == passes - 1
            with nullcontext() if is_last or context.world_size == 1 else model.no_sync(), precision.autocast(device.type):
                loss = model(part) / passes
            scaler.scale(loss).backward()
        if settings.clip_norm is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    _synchronise(context.device)
    return measured.steps * settings.global_batch / (time.perf_counter() - started)


class _Loss(nn.Module):
    """A task's mean loss as the output of a module, which DistributedDataParallel wants."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.model = task, task.model()

    def forward(self, batch: Batch) -> Tensor:
        loss, weight = self.task.loss(self.model, batch)
        return loss / weight


def _flops_per_row(task: Task, batch: Batch) -> float:
    """FLOPs of matrix products and convolutions, forward and backward, counted on one or two rows."""
    few = {name: values[:2].cpu() for name, values in batch.items()}
    model = task.model()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # of others on CPUs, no FLOPs are counted
        task.loss(model, few)[0].backward()
    return counter.get_total_flops() / len(next(iter(few.values())))


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
