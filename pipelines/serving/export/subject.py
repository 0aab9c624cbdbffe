"""The subject of an export: the model of a run in MLflow, and the rows of the dataset version that it was trained on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types
import torch
from torch import nn

from pipelines.config import Config
from pipelines.config.tasks.functions import holds_code
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.features.numbers import Identity, Log1p, MinMax, NumberEncoder, Standardize
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.folds import select_fold
from pipelines.data.versions.manifest import SPLITS, Manifest
from pipelines.data.versions.schema import TensorColumn, schema_from_text
from pipelines.data.versions.versions import Version, check_is_not_erased, open_version
from pipelines.errors import ConfigError, DatasetError
from pipelines.serving.model.logged_model import read_model
from pipelines.serving.model.predictor import feature_encoders, input_schema
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.tracking.models import run_model_files

Rows = Mapping[str, np.ndarray]
"""Arrays by column, rows first."""


@dataclass(frozen=True)
class Numeric:
    """Encoders that are arithmetic, by tensor column, and whether their raw column has integers only."""

    encoders: Mapping[str, NumberEncoder[Any]]
    is_integer: Mapping[str, bool]

    def raw(self, rows: Rows) -> dict[str, np.ndarray]:
        """Encoded rows with the raw numbers, float64, in place of these columns: integers exactly, others up to the rounding of the
        encoded value."""
        columns = dict(rows)
        for name, encoder in self.encoders.items():
            decoded = encoder.decode(rows[name]).astype(np.float64)
            columns[name] = np.rint(decoded) if self.is_integer[name] else decoded
        return columns

    def encode(self, raw: Rows) -> dict[str, np.ndarray]:
        """Rows from `raw`, encoded as the model in MLflow encodes them."""
        columns = dict(raw)
        for name, encoder in self.encoders.items():
            columns[name] = encoder.encode(pa.array(raw[name])).to_numpy(zero_copy_only=False)
        return columns


@dataclass(frozen=True)
class Subject:
    """A model with its dataset version."""

    uri: str
    """Address of the model in MLflow."""
    run_id: str
    digest: str
    """SHA-256 of its weights."""
    manifest: Manifest
    task: Task
    network: nn.Module
    """The trained model on the CPU; its `forward` takes tensors by column."""
    version: Version
    numeric: Numeric
    decision: Mapping[str, float]
    """What `Task.fit_decision` has fitted for the model; empty for nothing."""

    @property
    def raw_schema(self) -> pa.Schema:
        """The columns of the query that features are encoded from."""
        return input_schema(self.queried)

    @property
    def queried(self) -> Manifest:
        """The manifest of a model that takes the query's columns."""
        return self.manifest.model_copy(update={"served_query": None})

    @property
    def packs(self) -> bool:
        """Whether a raw row is a document, which becomes several rows of the network."""
        return any(isinstance(restore_encoder(self.manifest.encoders[column.name]), Packer) for column in self.columns)

    @property
    def columns(self) -> tuple[TensorColumn, ...]:
        """The tensor columns that the network takes."""
        return tuple(column for column in self.manifest.columns if column.role == "feature")

    def rows(self, split: str, batch_rows: int) -> Iterator[dict[str, np.ndarray]]:
        """The split's rows, target included, in the order of the version."""
        reader = Reader(self.version, split)
        for number in range(len(reader.groups)):
            values = {name: np.array(column) for name, column in reader.read(number).items()}
            for start in range(0, len(next(iter(values.values()))), batch_rows):
                yield {name: column[start : start + batch_rows] for name, column in values.items()}

    def first_rows(self, split: str, count: int) -> dict[str, np.ndarray]:
        """The first `count` rows of a split, or all of them; ETL has shuffled them."""
        batches: list[dict[str, np.ndarray]] = []
        for rows in self.rows(split, count):
            batches.append(rows)
            if sum(map(count_rows, batches)) >= count:
                break
        return {name: np.concatenate([rows[name] for rows in batches])[:count] for name in batches[0]}

    def other_rows(self, split: str, count: int, batch_rows: int) -> Iterator[dict[str, np.ndarray]]:
        """`count` rows that are not of this split: those of other splits, and if they are too few, rows whose columns are drawn from
        different ones of all rows. There are none of these if the network takes a single column."""
        other_splits = [name for name in reversed(SPLITS) if name != split and self.version.rows(name)]
        for name in other_splits:
            for rows in self.rows(name, batch_rows):
                yield head(rows, count)
                count -= min(count, count_rows(rows))
                if not count:
                    return
        if len(self.columns) == 1:
            return
        all_rows = [self.first_rows(name, batch_rows) for name in (split, *other_splits)]
        columns = {name: np.concatenate([rows[name] for rows in all_rows]) for name in all_rows[0]}
        draw = np.random.Generator(np.random.Philox(key=0))
        for start in range(0, count, batch_rows):
            rows_drawn = min(batch_rows, count - start)
            yield {name: values[draw.integers(0, len(values), rows_drawn)] for name, values in columns.items()}

    def output(self, rows: Rows) -> np.ndarray:
        """The output of the model in MLflow for encoded rows."""
        with torch.inference_mode():
            return self.network(to_tensors(self.features(rows))).numpy()

    def features(self, rows: Rows) -> dict[str, np.ndarray]:
        """The columns that the network takes."""
        return {column.name: rows[column.name] for column in self.columns}


def read_subject(config: Config, run_id: str) -> Subject:
    """Read the model of a run, and its dataset version.

    Raises TrackingError if the run has no model, CorruptError if its files were altered, ConfigError if it has code of its own in its
    settings, and DatasetError if the version that `dataset` describes is another one than the model was trained on.
    """
    with run_model_files(config.tracking.uri, run_id) as (uri, folder):
        parts, digest = read_model(folder)
    settings, manifest, weights, decision = parts
    if holds_code(settings) and settings.model_dump(include={"source"}) != config.task.model_dump(include={"source"}):
        raise ConfigError(f"run {run_id} has another function in task.source than the config, which would run; use the config of the run")
    version = open_version(config.dataset.path, config.data_identity)
    if version.digest != manifest.digest:
        check_is_not_erased(config.dataset.path, manifest.digest, run_id)
        raise DatasetError(
            f"run {run_id} was trained on dataset digest {manifest.digest[:12]}; {config.dataset.path} has {version.digest[:12]}, "
            f"version {version.manifest.version}; use the config of the run, and set dataset.path to its version"
        )
    if manifest.folds and manifest.folds.selected:
        version = select_fold(version, manifest.folds.selected)
    task = build_task(settings, manifest, decision)
    network = task.model()
    network.load_state_dict(weights)
    return Subject(uri, run_id, digest, manifest, task, network.eval(), version, find_numeric(manifest), decision)


def find_numeric(manifest: Manifest) -> Numeric:
    """The features of a manifest that are encoded by arithmetic."""
    kinds = {field.name: field.type for field in schema_from_text(manifest.raw_schema)} if manifest.raw_schema else {}
    features = feature_encoders(manifest)
    encoders, is_integer = dict[str, NumberEncoder[Any]](), dict[str, bool]()
    for name, fitted in features.items():
        encoder, kind = restore_encoder(fitted), kinds.get(fitted.inputs[0])
        # One of these classes itself: a derived one may compute anything.
        is_arithmetic = type(encoder) in (Standardize, MinMax, Log1p, Identity) and fitted.column.dtype == "float32"
        if isinstance(encoder, NumberEncoder) and is_arithmetic:
            encoders[name] = encoder
            is_integer[name] = kind is not None and (types.is_integer(kind) or types.is_boolean(kind))
    return Numeric(encoders, is_integer)


def to_tensors(rows: Rows) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(values)) for name, values in rows.items()}


def count_rows(rows: Rows) -> int:
    return len(next(iter(rows.values())))


def head(rows: Rows, count: int) -> dict[str, np.ndarray]:
    return {name: values[:count] for name, values in rows.items()}


def pad_rows(batch: Rows, rows: int) -> dict[str, np.ndarray]:
    """The batch with its last row repeated, up to so many rows."""
    missing = rows - count_rows(batch)
    return {name: np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) for name, values in batch.items()}
