"""Fetches a run's initial weights from another run or from files, and checks that they fit the model, before anything else starts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from safetensors import SafetensorError
from torch import Tensor

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import TrainingError
from pipelines.launch.weight_files import read_weight_files
from pipelines.runtime.weights import from_bytes, model_digest, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.run_directory import INITIAL, RunDirectory
from pipelines.train.initial_model import Fit, check_weights_fit, fit_weights, meta_model


@dataclass(frozen=True)
class InitialWeights:
    content: bytes
    """The safetensors file for the workers."""
    fit: Fit | None = None
    """Which tensors it has and which it has not; None for all those of a run."""

    def to_file(self) -> bytes:
        """The JSON that the run files about it."""
        return json.dumps(self.fit.to_values() if self.fit else {}, indent=1).encode()


def add_digest(config: Config) -> Config:
    """Add to a config the digest of the weights that `train.init_from` takes from a file or folder, which is part of a run's identity.

    Raises TrainingError if they cannot be read; if the config has a digest, they are not.
    """
    settings = config.train.init_from
    if not (settings.file or settings.folder) or settings.digest:
        return config
    settings = settings.model_copy(update={"digest": model_digest(read_weight_files(settings))})
    return config.model_copy(update={"train": config.train.model_copy(update={"init_from": settings})})


def initial_weights(config: Config, version: Version) -> InitialWeights | None:
    """The weights that `train.init_from` names; None if it names none.

    Raises TrackingError if MLflow has no such run or no weights of it. Raises TrainingError if the weights cannot be read, lack
    the logged digest or that of the config, or do not fit this model.
    """
    settings = config.train.init_from
    if not settings.is_given:
        return None
    task = build_task(config.task, version.manifest)
    model = meta_model(task)
    if not settings.run:
        weights: Mapping[str, Tensor] = read_weight_files(settings)
        if settings.digest and (digest := model_digest(weights)) != settings.digest:
            raise TrainingError(
                f"train.init_from.digest is {settings.digest[:12]}, but the weights in {settings.origin} have {digest}; restore them, or "
                "remove digest for a new run"
            )
    else:
        contents, weights = _run_weights(config)
        if settings.is_short:
            check_weights_fit(model, weights, settings)
            return InitialWeights(contents[0] if len(contents) == 1 else to_bytes(weights))
    fit = fit_weights(model, weights, settings, task.adopt_names)
    return InitialWeights(to_bytes(fit.weights), fit)


def has_initial_weights(config: Config, version: Version) -> bool:
    """Whether this command resumes a run whose directory already has its initial weights."""
    directory = tracking.resumable_folder(config, version) if config.train.init_from.is_given else ""
    return bool(directory) and RunDirectory(directory).has(INITIAL)


def write_initial_weights(initial: InitialWeights | None, directory: RunDirectory) -> None:
    """Write the initial weights into the run's directory for the workers, unless it has some."""
    if initial is not None and not directory.has(INITIAL):
        directory.put_with_checksum(INITIAL, initial.content)


def _run_weights(config: Config) -> tuple[list[bytes], Mapping[str, Tensor]]:
    """The files and the weights of a run, which are those that it logged."""
    origin = config.train.init_from.run
    contents, digest = tracking.download_weights(config.tracking.uri, origin)
    try:
        weights = {name: tensor for content in contents for name, tensor in from_bytes(content).items()}
    except SafetensorError as error:
        raise TrainingError(f"train.init_from is {origin}, whose weights cannot be read: {error}; train that run again") from error
    if digest and (weights_digest := model_digest(weights)) != digest:
        raise TrainingError(
            f"train.init_from is {origin}, whose weights are not the ones that it logged "
            f"(digest {weights_digest[:12]}, and not {digest[:12]}); train that run again"
        )
    return contents, weights
