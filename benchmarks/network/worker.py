"""One of two workers of the slow-link benchmark: it prints seconds and bytes sent per step.

python -m benchmarks.network.worker RANK ADDRESS INTERFACE FOLDER WARM_UP STEPS SETTINGS

SETTINGS is JSON: `train` settings, or {"torch": HOOK} for DistributedDataParallel by itself, with a hook of torch's.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.network.case import CASE
from benchmarks.train.cases import case_config, random_tensors
from pipelines.data.versions.versions import open_version
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.initial_model import first_model
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

PORT = 29_555


class MeasuredError(Exception):
    """All steps are measured: it ends the loop, without a save."""


class Meter(Hooks):
    """Measures the steps after the warm-up."""

    def __init__(self, interface: str, warm_up: int, steps: int) -> None:
        self._sent = Path(f"/sys/class/net/{interface}/statistics/tx_bytes")
        self._warm_up, self._steps = warm_up, steps

    def step(self, number: int) -> None:
        if number == self._warm_up:
            self._start, self._bytes = time.perf_counter(), int(self._sent.read_text())
        if number == self._warm_up + self._steps:
            seconds, sent = time.perf_counter() - self._start, int(self._sent.read_text()) - self._bytes
            print(json.dumps({"seconds": seconds / self._steps, "bytes": sent / self._steps}), flush=True)
            raise MeasuredError


def ours(context: WorkerContext, folder: Path, meter: Meter, settings: dict[str, Any]) -> None:
    config = case_config(CASE, folder)
    train = {**config.train.model_dump(), "max_steps": 10_000, "storage": f"{folder}/runs", **settings}
    config = config.model_copy(update={"train": type(config.train).model_validate(train)})
    version = open_version(config.dataset.path)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(config.train.storage), context, 1), meter).run()


def bare(context: WorkerContext, folder: Path, meter: Meter, hook: str) -> None:
    """Train the same model with the same rows and optimizer, from tensors in memory."""
    config, rows = case_config(CASE, folder), random_tensors(CASE)
    task = build_task(config.task, open_version(config.dataset.path).manifest)
    model = first_model(config.train, task, None)
    # With several buckets, powerSGD_hook fails over Gloo: its callbacks start collectives in another order on each worker.
    one_bucket = {"bucket_cap_mb": 100} if hook == "powerSGD_hook" else {}
    replicated = DistributedDataParallel(model, gradient_as_bucket_view=True, **one_bucket)
    if hook == "fp16_compress_hook":
        replicated.register_comm_hook(None, fp16_compress_hook)
    elif hook == "powerSGD_hook":
        replicated.register_comm_hook(PowerSGDState(None, 4, start_powerSGD_iter=2, orthogonalization_epsilon=1e-8), powerSGD_hook)
    optimizer = torch.optim.Adam(model.parameters(), config.train.lr, fused=True)
    rows_per_worker = CASE.global_batch // context.world_size
    for number, start in enumerate(_starts(rows_per_worker)):
        meter.step(number)
        batch = {name: values[start : start + rows_per_worker] for name, values in rows.items()}
        optimizer.zero_grad()
        nn.functional.cross_entropy(replicated(batch), batch["label"]).backward()
        optimizer.step()


def _starts(rows_per_worker: int) -> Iterator[int]:
    while True:
        yield from range(0, CASE.rows - rows_per_worker, rows_per_worker)


def main() -> None:
    rank, address, interface, folder, warm_up, steps, text = sys.argv[1:]
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(rank) % len(os.sched_getaffinity(0))]})
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo", f"tcp://{address}:{PORT}", timedelta(seconds=120), 2, int(rank))
    context, settings, meter = WorkerContext(int(rank), 2), json.loads(text), Meter(interface, int(warm_up), int(steps))
    with suppress(MeasuredError):
        if "torch" in settings:
            bare(context, Path(folder), meter, settings["torch"])
        else:
            ours(context, Path(folder), meter, settings)
    dist.barrier()
    os._exit(0)  # threads of the loader need not end


if __name__ == "__main__":
    main()
