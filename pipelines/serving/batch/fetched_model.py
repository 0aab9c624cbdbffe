"""The model of a prediction: what it takes and gives, and its files, which go to every machine as one archive."""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pipelines.config import Config
from pipelines.config.features import encoder_settings
from pipelines.errors import ConfigError
from pipelines.serving.model.logged_model import download_model
from pipelines.serving.model.process import ModelProcess, Takes
from pipelines.tracking.client import connect


@dataclass(frozen=True)
class Model:
    """A model as the driver knows it."""

    uri: str
    about: Mapping[str, Any]
    """The description from `serving.model.alone`."""
    archive: Path
    inputs: pa.Schema
    """The columns that it takes."""
    outputs: pa.Schema
    """The columns that it gives, `refused` among them."""
    files_digest: str
    """Of all files of the model: equal weights predict otherwise with other settings of the task, encoders or code."""

    @property
    def takes(self) -> Takes:
        return "rows" if self.about["table"] else "query"

    @property
    def dropping(self) -> set[str]:
        """Reasons of rows that a WHERE of the query drops, which are no fault of theirs."""
        return set(self.about["conditions"]) - set(self.about["source"].get("expect", ()))


def fetch_model(config: Config, uri: str, folder: str) -> Model:
    """Download a model into a folder, verify its files, and pack them there. Raises TrackingError, CorruptError, and ConfigError
    unless it was trained on what the config's pipeline makes."""
    connect(config.tracking.uri)
    files = download_model(config.tracking.uri, uri, folder)
    with ModelProcess(files) as process:
        about, inputs, outputs = process.about, process.inputs, process.outputs
    archive = Path(folder, f"model-{about['digest'][:12]}-{uuid4().hex[:8]}.tar")
    model = Model(uri, about, archive, inputs, outputs, _files_digest(Path(files)))
    check_model_pipeline(config, model)
    with tarfile.open(archive, "w") as tar:
        tar.add(files, "model", filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return model


def _files_digest(folder: Path) -> str:
    """The digest of the list of digests."""
    return sha256((folder / "digests.json").read_bytes()).hexdigest()


def name_features(config: Config, model: Model) -> Config:
    """The config with the model's features, if its own are patterns or `auto`."""
    if config.dataset.is_resolved:
        return config
    features = {name: encoder_settings(values) for name, values in model.about["features"].items()}
    return config.model_copy(update={"dataset": config.dataset.model_copy(update={"features": features})})


def check_model_pipeline(config: Config, model: Model) -> None:
    """Raises ConfigError unless the model was trained on what the config's pipeline makes."""
    pipeline, source = model.about["pipeline"], model.about["source"]
    if pipeline != config.name:
        raise ConfigError(
            f"--model {model.uri} is a model of the pipeline {pipeline}, and the config is {config.name}; give its own config"
        )
    windows = config.source.windows and config.source.windows.model_dump(mode="json")
    if model.takes == "query" and source and (source.get("query") or "", source.get("windows")) != (config.source.query, windows):
        raise ConfigError(
            f"--model {model.uri} takes the columns of another query than the config's source.query, or of other source.windows; "
            "give the config it was trained with, or train a model with this one"
        )
