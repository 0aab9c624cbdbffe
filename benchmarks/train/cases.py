"""The models that training is measured on, with their rows as a dataset version and as tensors in memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pipelines.config import Config, parse
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import TensorColumn, schema_to_text

WORKERS = 2
CLASSES = 10
ROW_GROUP_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Case:
    """One model and its rows, enough for one epoch: a run saves and validates at its end, which a bare script does not."""

    task: dict[str, Any]
    feature: dict[str, Any]
    columns: int
    shape: tuple[int, ...]
    dtype: str
    rows: int
    global_batch: int
    warm_up: int
    """Steps that are not measured: processes that Ray starts besides its workers use both cores for seconds."""
    steps: int
    """Steps after the warm-up: more than are measured in turns, and those that other benchmarks measure."""

    @property
    def names(self) -> list[str]:
        return [f"x{number:02}" for number in range(self.columns)]


CASES = {
    "mnist, small network": Case(
        {"kind": "vision", "network": "small", "dropout": 0.3},
        {"encoder": "image", "shape": [1, 28, 28]},
        1,
        (1, 28, 28),
        "uint8",
        400_000,
        128,
        500,
        2_500,
    ),
    "MLP 4 x 1,024 on 100 columns": Case(
        {"kind": "tabular", "hidden": [1_024] * 4}, {"encoder": "identity"}, 100, (), "float32", 700_000, 512, 100, 1_200
    ),
}


def find_case(name: str, small: bool) -> Case:
    """The case of that name; `small` is for a test that it runs."""
    return replace(CASES[name], rows=50_000, warm_up=2, steps=1_500) if small else CASES[name]


def random_rows(case: Case) -> dict[str, np.ndarray]:
    """The case's rows, always the same: columns by name, with the target `label`."""
    random = np.random.default_rng(0)
    shape = (case.rows, *case.shape)
    features = {
        name: random.integers(0, 256, shape, np.uint8) if case.dtype == "uint8" else random.standard_normal(shape, np.float32)
        for name in case.names
    }
    return {**features, "label": random.integers(0, CLASSES, case.rows, np.int64)}


def random_tensors(case: Case) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values) for name, values in random_rows(case).items()}


def case_config(case: Case, folder: Path) -> Config:
    """The config of our training; the only split is `train`, and no rows are cached."""
    return parse(
        {
            "name": "benchmark",
            "source": {"tables": {"rows": {"format": "parquet", "path": "rows"}}},
            "dataset": {"path": str(folder / "data"), "features": dict.fromkeys(case.names, case.feature), "target": {"label": "label"}},
            "task": case.task,
            "train": {
                "workers": WORKERS,
                "storage": str(folder / "runs"),
                "global_batch": case.global_batch,
                "optimizer": "adam",
                "weight_decay": 0,
                "cache_bytes": 0,
                "epochs": 1_000,
                "max_steps": case.warm_up + case.steps,
            },
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "benchmark",
    )


def write_version(case: Case, config: Config, row_group_bytes: int = ROW_GROUP_BYTES) -> str:
    """Write the rows as a dataset version. Returns the path of its only part file."""
    rows = random_rows(case)
    states: dict[str, Any] = {"identity": {"impute": None, "dtype": case.dtype}, "image": {}}
    classes = [str(number) for number in range(CLASSES)]
    encoders = {}
    for name, settings in config.dataset.encoders.items():
        target = name == "label"
        column = TensorColumn(
            name=name,
            dtype=str(rows[name].dtype),
            shape=rows[name].shape[1:],
            role="target" if target else "feature",
            cardinality=CLASSES if target else None,
        )
        state = {"classes": classes, "counts": [1] * CLASSES} if target else states[settings.encoder]
        encoders[name] = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=(name,), state=state, column=column)
    raw = pa.schema([(name, pa.float32() if case.dtype == "float32" else pa.binary()) for name in case.names] + [("label", pa.int64())])
    version = commit_arrays(
        config.dataset.path,
        {"train": [rows]},
        encoders,
        row_group_bytes,
        identity=config.data_identity,
        raw_schema=schema_to_text(raw),
    )
    return f"{version.root}/{version.row_groups[0].file}"
