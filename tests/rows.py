"""Small trainings of any task: raw rows, encoded and written as ETL does, without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fitting import gather_statistics
from stores import new_store
from trainings import write_once

from pipelines.config import Config, parse
from pipelines.data.features import Encoders, fit_encoders
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import schema_to_text, to_numpy


def training_on(
    raw: Mapping[str, pa.Table],
    folder: Path,
    features: dict[str, Any],
    target: dict[str, Any],
    task: dict[str, Any],
    carried: dict[str, Any] | None = None,
    **train: Any,
) -> Config:
    """The config of a training on raw rows by split, of which it writes a version if there is none."""
    rates = {"global_batch": 32, "lr": 0.01}
    config = parse(
        {
            "name": "rows",
            "source": {"tables": {"rows": {"format": "parquet", "path": "rows"}}},
            "dataset": {"path": str(folder / "data"), "features": features, "target": target, "passthrough": carried or {}},
            "task": task,
            "train": {"storage": str(folder / "runs"), "epochs": 2, **(rates if task["kind"] != "trees" else {}), **train},
            "tracking": {"uri": new_store(folder)},
        },
        "rows",
    )

    def write(path: Path) -> None:
        fitted = fit_encoders(config.dataset, gather_statistics(config.dataset, raw["train"]), raw["train"].schema)
        encoders = Encoders(fitted)
        parts: dict[str, list[dict[str, np.ndarray]]] = {}
        for split, rows in raw.items():
            encoded, refused = encoders.encode(rows)
            assert refused.null_count == len(rows)
            parts[split] = [{name: to_numpy(encoder.column, encoded[name].combine_chunks()) for name, encoder in fitted.items()}]
        metadata = {"identity": config.data_identity, "raw_schema": schema_to_text(raw["train"].schema)}
        commit_arrays(str(path), parts, fitted, 2**14, **metadata)

    write_once(folder / "data", write)
    return config
