"""Fetches a run's initial weights from other runs, or from safetensors files on a disk or a store, and checks that they fit the model,
before anything else starts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyarrow.fs import FileType
from safetensors import SafetensorError
from torch import Tensor

from pipelines import tracking
from pipelines.config import Config
from pipelines.config.plugins import import_class
from pipelines.config.train.init_from import SAFETENSORS, InitFrom
from pipelines.data.versions import storage
from pipelines.data.versions.versions import Version
from pipelines.errors import DatasetError, TrainingError
from pipelines.runtime.weights import WEIGHTS, WEIGHTS_INDEX, from_bytes, model_digest, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.run_directory import INITIAL, RunDirectory
from pipelines.train.initial_model import Fit, OriginReader, check_weights_fit, fit_weights, meta_model

_WHOLE = ("model.safetensors", WEIGHTS)
_INDEXES = ("model.safetensors.index.json", WEIGHTS_INDEX)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_CONVERT = "convert it where it is trusted, by safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW_FILE)"
_PICKLED = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))
"""First bytes of pickles."""
_POINTER = b"version https://git-lfs"
"""First bytes of what git checks out in place of a large file."""


def read_weight_files(settings: InitFrom) -> dict[str, Tensor]:
    """All tensors of the file or folder that `train.init_from` names. Raises TrainingError for one that is missing, damaged or a pickle."""
    if settings.file:
        return _read_file(settings.file)
    folder = settings.folder
    try:
        filesystem, path = storage.locate(folder)
        if storage.ask(filesystem, path).type != FileType.Directory:
            raise TrainingError(f"train.init_from.folder is {folder}, which is no folder; name a folder, or set file to a file")
        names = {entry.base_name for entry in storage.entries(filesystem, path)}
    except DatasetError as error:
        raise TrainingError(f"train.init_from: {error}") from error
    if file := next((name for name in _WHOLE if name in names), ""):
        return _read_file(join_place(folder, file))
    if index := next((name for name in _INDEXES if name in names), ""):
        return _read_shards(folder, index)
    if pickle := next((name for name in sorted(names) if PurePosixPath(name).suffix in _PICKLES), ""):
        raise TrainingError(f"train.init_from.folder is {folder}, which has {pickle}, a pickle, and no {_WHOLE[0]}; {_CONVERT}")
    raise TrainingError(f"train.init_from.folder is {folder}, which has neither {_WHOLE[0]} nor {_INDEXES[0]}; name a folder that has one")


def _read_shards(folder: str, index: str) -> dict[str, Tensor]:
    place = join_place(folder, index)
    try:
        file_of_tensor = dict(json.loads(_content(place))["weight_map"])
        if not file_of_tensor or not all(isinstance(file, str) for file in file_of_tensor.values()):
            raise ValueError("it does not name a file for each tensor")
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"train.init_from: {place} is no index of safetensors files; download it again") from error
    weights: dict[str, Tensor] = {}
    for file in sorted(set(file_of_tensor.values())):
        if PurePosixPath(str(file)).name != file or not str(file).endswith(SAFETENSORS):
            raise TrainingError(f"train.init_from: {place} names {file}, which is no {SAFETENSORS} file beside it; {_CONVERT}")
        tensors = _read_file(join_place(folder, file))
        if missing := [name for name, owner in file_of_tensor.items() if owner == file and name not in tensors]:
            raise TrainingError(f"train.init_from: {folder}/{file} lacks {missing[0]}, which {index} says it has; download both again")
        weights |= {name: tensor for name, tensor in tensors.items() if file_of_tensor.get(name) == file}
    return weights


def join_place(folder: str, file: str) -> str:
    """The path or URI of a file in a folder; options of a URI stay at its end."""
    path, mark, options = folder.partition("?") if "://" in folder else (folder, "", "")
    return f"{path.rstrip('/')}/{file}{mark}{options}"


def _read_file(place: str) -> dict[str, Tensor]:
    content = _content(place)
    try:
        return from_bytes(content)
    except (SafetensorError, ValueError, KeyError) as error:
        if content.startswith(_POINTER):
            fault = f"{place} is a pointer of Git LFS instead of the weights; fetch them by git lfs pull"
            raise TrainingError(f"train.init_from: {fault}") from error
        if content.startswith(_PICKLED):
            raise TrainingError(f"train.init_from: {place} is a pickle, in spite of its name; {_CONVERT}") from error
        raise TrainingError(f"train.init_from: {place} cannot be read as safetensors: {error}; download or write it again") from error


def _content(place: str) -> bytes:
    try:
        content = storage.read(*storage.locate(place))
    except DatasetError as error:
        raise TrainingError(f"train.init_from: {error}") from error
    if content is None:
        raise TrainingError(f"train.init_from: {place} does not exist; name a file or folder that does")
    return content


@dataclass(frozen=True)
class InitialWeights:
    content: bytes
    """The safetensors file for the workers."""
    fit: Fit | None = None
    """Which tensors it has and which it has not; None for all those of a run."""


def fill_in_origins(config: Config, version: Version) -> Config:
    """Add to a config what is part of a run's identity and stands elsewhere: what the task notes of the runs that it names, and the
    digest of weights in files. Raises ConfigError for runs that do not fit the task, and what `add_digest` does."""
    reader = _origin_reader(config)
    return add_digest(reader.fill_in(config, version) if reader else config)


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
    """The weights that `train.init_from` names, or of the runs that the task names; None if they name none.

    Raises TrackingError if MLflow has no such run or no weights of it. Raises TrainingError if the weights cannot be read, lack
    the logged digest or that of the config, or do not fit this model; of runs that the task names, ConfigError.
    """
    if reader := _origin_reader(config):
        return InitialWeights(to_bytes(reader.weights(config, version)))
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
    directory = tracking.resumable_folder(config, version) if config.starts_from_weights else ""
    return bool(directory) and RunDirectory(directory).has(INITIAL)


def write_initial_weights(initial: InitialWeights | None, directory: RunDirectory) -> None:
    if initial is not None and not directory.has(INITIAL):
        directory.put_with_checksum(INITIAL, initial.content)


def _origin_reader(config: Config) -> OriginReader | None:
    path = config.task.origin_reader
    return import_class(path, OriginReader, "a reader of origins")() if path else None  # type: ignore[type-abstract]


def _run_weights(config: Config) -> tuple[list[bytes], Mapping[str, Tensor]]:
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
