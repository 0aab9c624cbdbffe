"""Rows, network and steps of conf/digits.yaml, for the scripts that train without Lockstep."""

from collections.abc import Callable
from pathlib import Path

import mlflow
import mlflow.pytorch
import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

WORKERS, EPOCHS, GLOBAL_BATCH, LR, WARMUP = 2, 20, 64, 8e-3, 0.1


def read_split(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Images of shape (rows, 1, 8, 8) from 0 to 1, and labels."""
    table = pq.read_table(folder / f"split={split}", partitioning=None)
    pixels = np.stack(table["image"].to_numpy()).astype(np.float32) / 16
    return torch.from_numpy(pixels).view(-1, 1, 8, 8), torch.from_numpy(table["label"].to_numpy().astype(np.int64))


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    )


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def log_result(model: nn.Module, folder: Path) -> None:
    """Log test accuracy and model in MLflow's active run."""
    images, labels = read_split(folder, "test")
    mlflow.log_metric("test_accuracy", accuracy(model, images, labels))
    mlflow.pytorch.log_model(model, name="model", input_example=images[:1].numpy())


def train(model: nn.Module, rank: int, folder: Path, report: Callable[[int, dict[str, float]], None]) -> None:
    """Train this worker's share of every batch, and report loss and validation accuracy after each epoch."""
    images, labels = read_split(folder, "train")
    validation = read_split(folder, "validation")
    steps_per_epoch = len(labels) // GLOBAL_BATCH
    optimizer = AdamW(model.parameters(), lr=LR)
    schedule = OneCycleLR(optimizer, LR, total_steps=EPOCHS * steps_per_epoch, pct_start=WARMUP)
    for epoch in range(EPOCHS):
        model.train()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        for step in range(steps_per_epoch):
            rows = order[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH][rank::WORKERS]
            loss = functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        report(epoch, {"loss": float(loss), "validation_accuracy": accuracy(model, *validation)})
