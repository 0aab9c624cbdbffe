"""Trains the digits with DistributedDataParallel, and logs curves and model in MLflow.

torchrun --nproc-per-node 2 -m benchmarks.start.torchrun_train PARQUET TRACKING_URI
"""

import sys
from pathlib import Path

import mlflow
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.start.digits import log_result, network, train


def main(parquet: str, uri: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(network())
    if rank == 0:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment("torchrun")
        with mlflow.start_run():
            train(model, rank, Path(parquet), log_to_mlflow)
            log_result(model.module, Path(parquet))
    else:
        train(model, rank, Path(parquet), lambda epoch, metrics: None)
    dist.barrier()
    dist.destroy_process_group()


def log_to_mlflow(epoch: int, metrics: dict[str, float]) -> None:
    mlflow.log_metrics(metrics, step=epoch)


if __name__ == "__main__":
    main(*sys.argv[1:3])
