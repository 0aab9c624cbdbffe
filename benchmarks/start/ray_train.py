"""Trains the digits with Ray Train, as its documentation shows, and logs the model in MLflow.

python -m benchmarks.start.ray_train PARQUET FOLDER TRACKING_URI
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import ray
import ray.train
import ray.train.torch
import torch
from ray.train.torch import TorchTrainer

from benchmarks.start.digits import WORKERS, log_result, network, train


def train_on_worker(settings: dict[str, str]) -> None:
    torch.set_num_threads(1)
    model = ray.train.torch.prepare_model(network())

    def report(epoch: int, metrics: dict[str, float]) -> None:
        with TemporaryDirectory() as folder:
            torch.save(model.module.state_dict(), Path(folder, "model.pt"))
            is_first = ray.train.get_context().get_world_rank() == 0
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder) if is_first else None)

    train(model, ray.train.get_context().get_world_rank(), Path(settings["parquet"]), report)


def main(parquet: str, folder: str, uri: str) -> None:
    ray.init("local", num_cpus=WORKERS, include_dashboard=False)
    trainer = TorchTrainer(
        train_on_worker,
        train_loop_config={"parquet": parquet},
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(storage_path=folder),
    )
    result: Any = trainer.fit()
    model = network()
    with result.checkpoint.as_directory() as checkpoint:
        model.load_state_dict(torch.load(Path(checkpoint, "model.pt")))
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("ray_train")
    with mlflow.start_run():
        log_result(model, Path(parquet))


if __name__ == "__main__":
    main(*sys.argv[1:4])
