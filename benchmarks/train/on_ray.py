"""The programs that run on Ray: ours, and Ray Data with a prepared model, which prints its rows/s.

python -m benchmarks.train.on_ray ours|ray CASE THREADS FOLDER [small]
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.train
import ray.train.torch
import torch
from ray.train.torch import TorchTrainer
from torch.nn import functional
from torch.optim import Adam

from benchmarks.train.cases import WORKERS, Case, case_config, find_case, write_version
from pipelines.data.versions.schema import to_numpy
from pipelines.data.versions.versions import Version, open_version
from pipelines.launch.training_run import train
from pipelines.tasks.bind import build_task

SHUFFLED_BATCHES = 16
"""Size of Ray Data's local shuffle buffer, in batches."""


def train_with_lockstep(case: Case, threads: int, folder: Path) -> None:
    """A whole run of jobs/train.py; its curves have the time of every point."""
    config = case_config(case, folder)
    write_version(case, config)
    train(config.model_copy(update={"train": config.train.model_copy(update={"cpus_per_worker": threads})}))


def train_with_ray_data(case: Case, threads: int, folder: Path) -> None:
    """The training loop of Ray's documentation."""
    config = case_config(case, folder)
    part = write_version(case, config)
    version = open_version(config.dataset.path)
    ray.init("local", num_cpus=2 * WORKERS, include_dashboard=False, log_to_driver=False)  # Ray Data needs CPUs besides the workers
    dataset = ray.data.read_parquet(part, columns=[*case.names, "label"])
    if case.shape:
        dataset = dataset.map_batches(_decode_table, fn_args=[version], batch_format="pyarrow", batch_size=None)
    trainer = TorchTrainer(
        _rays_loop,
        train_loop_config={"case": case, "config": config.task.model_dump(), "version": version, "threads": threads},
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(storage_path=str(folder / "ray")),
        datasets={"train": dataset},
    )
    print("rows/s", trainer.fit().return_value)


def _decode_table(table: pa.Table, version: Version) -> dict[str, np.ndarray]:
    return {column.name: np.concatenate([to_numpy(column, chunk) for chunk in table[column.name].chunks]) for column in version.columns}


def _rays_loop(settings: dict[str, Any]) -> float:
    case: Case = settings["case"]
    torch.set_num_threads(settings["threads"])
    task = build_task(case_config(case, Path()).task, settings["version"].manifest)
    model = ray.train.torch.prepare_model(task.model())
    optimizer = Adam(model.parameters(), lr=1e-3, fused=True)
    shard, local = ray.train.get_dataset_shard("train"), case.global_batch // WORKERS
    step, started, steps = 0, 0.0, case.steps // 10
    while True:
        for batch in shard.iter_torch_batches(batch_size=local, local_shuffle_buffer_size=SHUFFLED_BATCHES * local, drop_last=True):
            if step == case.warm_up:
                started = time.perf_counter()
            if step == case.warm_up + steps:
                return steps * case.global_batch / (time.perf_counter() - started)
            loss = functional.cross_entropy(model(batch), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1


if __name__ == "__main__":
    loop_name, case, threads, folder = sys.argv[1:5]
    {"ours": train_with_lockstep, "ray": train_with_ray_data}[loop_name](
        find_case(case, small="small" in sys.argv), int(threads), Path(folder)
    )
