"""Small trainings: a config, and the dataset version it was made into, without Spark."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from stores import new_store
from versions import write_version

from pipelines.config import Config, parse
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.versions.manifest import FittedEncoder, content_digest, parse_manifest
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import TensorColumn, schema_to_text
from pipelines.data.versions.versions import Version, open_version
from pipelines.train.run_context import Hooks

FEATURES = 8


class StopsAfter(Hooks):
    """Asks the loop to stop after so many steps; None for never."""

    def __init__(self, steps: int | None) -> None:
        self._steps_left = steps

    def must_stop_training(self) -> bool:
        if self._steps_left is not None:
            self._steps_left -= 1
        return self._steps_left is not None and self._steps_left < 0


def training(
    folder: Path,
    *,
    rows: int = 2_000,
    task: dict[str, Any] | None = None,
    uri: str = "",
    numbered: bool = False,
    nan_row: int | None = None,
    one_class: tuple[str, ...] = (),
    weight_scale: float | None = None,
    missing_share: float = 0.0,
    **train: Any,
) -> Config:
    """The config of a training on numbers x0, x1, …, whose label says whether x0 · x1 + x2 / 2 is positive.

    The version that it names holds `rows` rows to train, a quarter as many to validate and to test. With `numbered`,
    x7 is the row's number within its split; in row `nan_row` to train x0 is not a number. Splits in `one_class` have label 1 only. With
    `weight_scale`, rows have weights of 0, 1, 2 and 3 times that. So many of x0 and x1 are missing, and kept so.
    """
    encoder: Any = {"encoder": "identity", "impute": "keep"} if missing_share else "identity"
    features = {f"x{number}": encoder for number in range(FEATURES)}
    passthrough = {} if weight_scale is None else {"passthrough": {"weight": "weight"}}
    task = {**(task or {}), **({"sample_weight": "weight"} if passthrough else {})}
    rates = {"global_batch": 64, "lr": 0.01}
    config = parse(
        {
            "name": "toy",
            "source": {"tables": {"points": {"format": "parquet", "path": "points"}}},
            "dataset": {"path": str(folder / "data"), "features": features, "target": {"label": "binary"}, **passthrough},
            "task": task if "kind" in task else {"kind": "tabular", "hidden": [32, 32], **task},
            "train": {"storage": str(folder / "runs"), "epochs": 3, **(rates if task.get("kind") != "trees" else {}), **train},
            "tracking": {"uri": uri or new_store(folder), "log_every_seconds": 0.2},
        },
        "toy",
    )

    def weights(rows: int) -> dict[str, np.ndarray]:
        return {"weight": (np.arange(rows) % 4 * (weight_scale or 0.0)).astype("float32")} if passthrough else {}

    def write(path: Path) -> None:
        generator = np.random.default_rng(0)
        parts = {"train": rows, "validation": rows // 4, "test": rows // 4}
        written = write_version(
            path,
            {
                split: [
                    _without_some(
                        _points(generator, count, numbered, nan_row if split == "train" else None, split in one_class), missing_share
                    )
                    | weights(count)
                ]
                for split, count in parts.items()
                if count
            },
            cardinality={"label": 2},
        )
        _as_etl_would(written, config)

    write_once(folder / "data", write)
    return config


def write_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Have the folder written if there is none. The processes of a group may all do so at the same time: the first has it, and none
    ever sees a part of it."""
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}-{uuid4().hex}")
        write(draft)
        try:
            draft.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(draft)


def characters(folder: Path, *, rows: int, task: dict[str, Any], **train: Any) -> Config:
    """The config of a language model of characters, in windows of 16 of them: words in no order. A tenth as many rows are to validate."""
    config = parse(
        {
            "name": "words",
            "source": {"tables": {"texts": {"format": "text", "path": "texts"}}},
            "dataset": {"path": str(folder / "data"), "features": {"text": {"encoder": "characters", "length": 16}}},
            "task": {"kind": "language", **task},
            "train": {"storage": str(folder / "runs"), "global_batch": 32, **train},
            "tracking": {"uri": new_store(folder), "log_every_seconds": 0.2},
        },
        "words",
    )

    def write(path: Path) -> None:
        encoder = _alphabet(config)
        packer = restore_encoder(encoder)
        assert isinstance(packer, Packer)
        chosen = np.random.default_rng(0).choice(["lock", "step", "shard", "tensor", "and", "pipeline", "of", "a", "worker"], 10 * rows)
        windows = packer.windows([packer.numbers(" ".join(chosen))])
        splits = {"train": [{"text": windows[:rows]}], "validation": [{"text": windows[rows : rows + rows // 10]}]}
        raw = schema_to_text(pa.schema([("text", pa.string())]))
        commit_arrays(str(path), splits, {"text": encoder}, 2**16, identity=config.data_identity, raw_schema=raw)

    write_once(folder / "data", write)
    return config


def _alphabet(config: Config) -> FittedEncoder:
    letters = " abcdefghijklmnopqrstuvwxyz"
    column = TensorColumn(name="text", dtype="uint8", shape=(17,), cardinality=2 + len(letters))
    feature = config.dataset.encoders["text"].model_dump(mode="json")
    return FittedEncoder(feature=feature, inputs=("text",), state={"characters": letters}, column=column)


def open_dataset(config: Config) -> Version:
    return open_version(config.dataset.path, config.data_identity)


def _points(generator: np.random.Generator, rows: int, numbered: bool, nan_row: int | None, one_class: bool) -> dict[str, np.ndarray]:
    x = generator.standard_normal((FEATURES, rows)).astype("float32")
    if numbered:
        x[-1] = np.arange(rows)
    if nan_row is not None:
        x[0, nan_row] = np.nan
    return {**{f"x{number}": x[number] for number in range(FEATURES)}, "label": ((x[0] * x[1] + x[2] / 2 > 0) | one_class).astype("uint8")}


def _without_some(points: dict[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {
        name: np.where(draw.random(len(values)) < share, np.float32(np.nan), values) if share and name in ("x0", "x1") else values
        for name, values in points.items()
    }


def _as_etl_would(version: Version, config: Config) -> None:
    """Give the version's manifest what ETL knows beside the rows: encoders' states, the raw schema, the config."""
    raw = pa.schema([*((f"x{number}", pa.float32()) for number in range(FEATURES)), ("label", pa.bool_())])
    states: dict[str, dict[str, Any]] = {
        "identity": {"impute": None, "dtype": "float32"},
        "binary": {"classes": ["false", "true"], "counts": [1, 1]},
        "weight": {"mean": 1.0},
    }
    encoders = {
        name: version.manifest.encoders[name].model_copy(
            update={
                "feature": settings.model_dump(mode="json"),
                "state": states[settings.encoder],
                "column": replace(
                    version.manifest.encoders[name].column, role=config.dataset.column_role(name), missing=settings.keeps_missing
                ),
            }
        )
        for name, settings in config.dataset.encoders.items()
    }
    manifest = version.manifest.model_copy(
        update={
            "encoders": encoders,
            "raw_schema": schema_to_text(raw),
            "identity": config.data_identity,
            "digest": content_digest(encoders, version.row_groups),
        }
    )
    path = Path(version.root) / "manifest.json"
    path.write_bytes(manifest.to_json())
    assert parse_manifest(path.read_bytes(), str(path)) == manifest, json.dumps(manifest.identity)
