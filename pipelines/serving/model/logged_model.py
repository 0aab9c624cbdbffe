"""Logs the model of a run in MLflow, with an archive of its code and the digests of its files, and loads it."""

import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel
from torch import Tensor

import pipelines
from pipelines.config import Config, EncoderSettings, TaskSettings
from pipelines.config.features import encoder_settings
from pipelines.config.tasks.functions import FunctionSettings, read_task
from pipelines.data.versions.manifest import Manifest, parse_manifest
from pipelines.errors import CorruptError, MismatchError, TrackingError
from pipelines.runtime.compat.mlflow import trusted_requirements
from pipelines.runtime.weights import WEIGHTS, WEIGHTS_INDEX, model_digest, read_files, write_files
from pipelines.serving.model.predictor import Predictor
from pipelines.serving.model.scoring import input_example, model_signature
from pipelines.tracking.descriptions import model_name

log = logging.getLogger(__name__)

PACKAGE = Path(pipelines.__file__).parent
FILES = {"config": "config.json", "manifest": "manifest.json"}
WEIGHTS_FILE_BYTES = 5 * 10**9
"""Weights of more bytes are several files, as in Hugging Face's libraries: some object stores take no larger ones in one request."""
# Distributions of the modules that are imported for prediction.
DISTRIBUTIONS = (
    "mlflow", "numpy", "pandas", "pillow", "pyarrow", "pydantic", "PyYAML", "safetensors", "tokenizers", "torch", "torchmetrics",
    "duckdb", "xxhash",
)  # fmt: skip


def write_archive(package: Path, archive: Path) -> None:
    """Write all files of a package's folder to a zip file, except compiled ones. Equal files give equal bytes."""
    files = {file.relative_to(package.parent).as_posix(): file for file in package.rglob("*") if file.is_file()}
    write_zip({name: file.read_bytes() for name, file in files.items() if "__pycache__" not in name}, archive)


def write_zip(contents: Mapping[str, bytes], archive: Path) -> None:
    """Write contents by their paths to a zip file, in the order of the paths. They are stored as they are: versions of zlib compress to
    different bytes."""
    with ZipFile(archive, "w", ZIP_STORED) as opened:
        for name in sorted(contents):
            entry = ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the earliest time that the format has
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # a file of Unix that everyone can read
            opened.writestr(entry, contents[name])


def load_predictor(artifacts: Mapping[str, str], digest: str) -> Predictor:
    """The predictor of a logged model; `artifacts` are the paths of FILES, and of its `weights` or their index. Raises CorruptError if its
    weights have another digest."""
    return Predictor(*_read_parts({name: Path(artifacts[name]) for name in (*FILES, "weights")}, digest))


class ModelParts(NamedTuple):
    """Parts of a predictor."""

    settings: TaskSettings
    manifest: Manifest
    weights: dict[str, Tensor]
    decision: dict[str, float]
    """How outputs become predictions, by `Task.fit_decision`."""


def read_model(folder: Path) -> tuple[ModelParts, str]:
    """The parts of a logged model in its folder, and the digest of its weights; none of its code runs. Raises CorruptError if one of these
    files was altered or removed."""
    try:
        digests = json.loads((folder / "digests.json").read_bytes())
        logged = {folder / name: digest for name, digest in digests["files"].items() if name.startswith("artifacts/")}
        altered = [file for file, digest in logged.items() if not file.is_file() or sha256(file.read_bytes()).hexdigest() != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"the model in {folder} cannot be read: {error!r}; log it again with jobs/train.py") from error
    if altered:
        raise CorruptError(f"{altered[0]} is not the file that was logged; log the model again with jobs/train.py")
    index = folder / "artifacts" / WEIGHTS_INDEX
    files = {name: folder / "artifacts" / file for name, file in FILES.items()}
    files["weights"] = index if index in logged else folder / "artifacts" / WEIGHTS
    return _read_parts(files, str(digests["model"])), str(digests["model"])


def _read_parts(files: Mapping[str, Path], digest: str) -> ModelParts:
    config, manifest, weights = (files[name] for name in (*FILES, "weights"))
    values = json.loads(config.read_bytes())
    try:
        settings = read_task(values["task"])
    except ValueError as error:
        raise MismatchError(f"task.kind is {values['task']['kind']}: {error}") from error
    served = read_files(weights)
    if (present := model_digest(served)) != digest:
        raise CorruptError(f"{weights} contains model {present[:12]}…, but {digest[:12]}… was logged; log it again with jobs/train.py")
    return ModelParts(settings, parse_manifest(manifest.read_bytes(), str(manifest)), served, values.get("decision", {}))


def load_model(tracking_uri: str, uri: str) -> PyFuncModel:
    """Load a logged model by its URI, `models:/…`. Raises TrackingError if MLflow cannot load it."""
    mlflow.set_tracking_uri(tracking_uri)
    try:
        return mlflow.pyfunc.load_model(uri)
    except (MlflowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise TrackingError(
            f"model {uri} cannot be loaded from {tracking_uri}: {first_line}; start the server, or use the URI of a model that exists"
        ) from error


def download_model(tracking_uri: str, uri: str, folder: str | Path) -> Path:
    """Download a logged model by its URI, and return its folder below `folder`. Raises TrackingError if MLflow does not have it."""
    mlflow.set_tracking_uri(tracking_uri)
    try:
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder), tracking_uri=tracking_uri))
    except (MlflowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise TrackingError(
            f"model {uri} cannot be read from {tracking_uri}: {first_line}; start the server, or use the URI of a model that exists"
        ) from error


def log_model(
    config: Config,
    manifest: Manifest,
    weights: Mapping[str, Tensor],
    run_id: str,
    step: int = 0,
    decision: Mapping[str, float] | None = None,
) -> str:
    """Log the model of a run to the MLflow of `config.tracking`, and return its URI, `models:/…`. `weights` is the state dict of the model,
    and `decision` what its task has fitted after training. MLflow shows the metrics of the run at `step` with the model."""
    manifest = drop_passthrough_columns(drop_unproven_query(manifest))
    mlflow.set_tracking_uri(config.tracking.uri)
    client, name = mlflow.MlflowClient(), model_name(config)
    model = client.create_logged_model(client.get_run(run_id).info.experiment_id, name=name, source_run_id=run_id)
    code, requirements = software_requirements(config.task, [encoder_settings(fitted.feature) for fitted in manifest.encoders.values()])
    digest, predictor = model_digest(weights), Predictor(config.task, manifest, weights, decision)
    with TemporaryDirectory() as folder, trusted_requirements():
        artifacts = _write_parts(Path(folder), config, manifest, weights, decision)
        write_archive(PACKAGE, archive := Path(folder, "pipelines.zip"))
        logged = Model.log(
            None,
            VerifiedFlavor(digest),
            name=name,
            run_id=run_id,
            model_id=model.model_id,  # without it, MLflow uses the current experiment
            step=step,
            metadata=_metadata(config, predictor, manifest, digest),
            validate_serving_input=False,  # `VerifiedFlavor` does; MLflow would write MLmodel again
            python_model=str(Path(__file__).with_name("entry.py")),
            artifacts=artifacts,
            code_paths=[str(archive), *code],
            pip_requirements=requirements,
            signature=model_signature(predictor),
            input_example=input_example(manifest),
        )
    return logged.model_uri


def _metadata(config: Config, predictor: Predictor, manifest: Manifest, digest: str) -> dict[str, Any]:
    """Metadata that MLflow shows with a model, with the types of the inputs, which a signature cannot fully express."""
    served = manifest.served_query
    takes = f"rows of {served.table}, before the query" if served else "the query's columns"
    inputs = {field.name: str(field.type) for field in predictor.inputs}
    return {"model.digest": digest, "dataset.digest": manifest.digest, "query": config.source.sql, "takes": takes, "inputs": inputs}


def _write_parts(
    folder: Path, config: Config, manifest: Manifest, weights: Mapping[str, Tensor], decision: Mapping[str, float] | None
) -> dict[str, str]:
    """Write the files of a predictor's parts, and return their paths, as `load_predictor` takes them."""
    files = {name: folder / file for name, file in FILES.items()}
    # Not the entire config: whoever knows a private run's seed can compute its noise.
    values = {**config.model_dump(mode="json", include={"task"}), **({"decision": dict(decision)} if decision else {})}
    files["config"].write_text(json.dumps(values, indent=1), encoding="utf-8")
    files["manifest"].write_bytes(manifest.to_json())
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    files["weights"], *shards = write_files(tensors, folder, WEIGHTS_FILE_BYTES)
    return {name: str(path) for name, path in {**files, **{shard.stem: shard for shard in shards}}.items()}


def drop_unproven_query(manifest: Manifest) -> Manifest:
    """The manifest without its served query if ETL compared Spark with another version of DuckDB than the installed one, which the
    model requires."""
    etl_version, present_version = manifest.versions.get("duckdb"), version("duckdb")
    if manifest.served_query is None or etl_version == present_version:
        return manifest
    log.warning(
        "the model takes the columns of the query: ETL compared DuckDB %s with Spark, but DuckDB %s is installed here; "
        "train with the version of the ETL for a model that takes raw rows",
        etl_version,
        present_version,
    )
    return manifest.model_copy(update={"served_query": None})


def drop_passthrough_columns(manifest: Manifest) -> Manifest:
    """The manifest without encoders and profiles of passthrough columns, such as the names of all clients: a model does not need them."""
    encoders = {name: fitted for name, fitted in manifest.encoders.items() if fitted.column.role != "carried"}
    hidden = {column for fitted in manifest.encoders.values() for column in fitted.inputs}
    hidden -= {column for fitted in encoders.values() for column in fitted.inputs}
    profile = {column: statistics for column, statistics in manifest.profile.items() if column not in hidden}
    return manifest.model_copy(update={"encoders": encoders, "profile": profile})


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder, by its path there, without compiled modules."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    return {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}


class VerifiedFlavor:
    """A flavor of MLflow that writes the folder of a model, and last the digests of its files, which `entry` verifies."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def save_model(self, path: str, validate_serving_input: bool, **model: Any) -> None:
        mlflow.pyfunc.save_model(path, **model)
        Path(path, "digests.json").write_text(
            json.dumps({"model": self._digest, "files": file_digests(Path(path))}, indent=1), encoding="utf-8"
        )
        loaded = mlflow.pyfunc.load_model(path)
        loaded.predict(loaded.input_example)


def software_requirements(task: TaskSettings, encoders: Sequence[EncoderSettings] = ()) -> tuple[list[str], list[str]]:
    """Paths of a user's code to log with the model, and the required distributions as pip requirements.

    The code of the user's task and encoders is logged unless it belongs to an installed distribution. It is logged as it is, since it
    may read files that stand beside it.
    """
    modules = [type(task).__module__, task.implementation]
    if isinstance(task, FunctionSettings) and not task.source:
        modules.append(task.kind)
    modules += [module for settings in encoders for module in (type(settings).__module__, settings.implementation)]
    packages = {module.partition(":")[0].partition(".")[0] for module in modules} - {PACKAGE.name}
    installed = packages_distributions() if packages else {}  # it reads the files of every distribution, for a second
    names = set(DISTRIBUTIONS).union(task.distributions, *(settings.distributions for settings in encoders))
    code = set()
    for package in packages:
        if package in installed:
            names.update(installed[package])
        elif spec := find_spec(package):
            code.add(next(iter(spec.submodule_search_locations or ()), spec.origin))
    # Package indexes have no local versions of builds, such as 2.13.0+cpu.
    return sorted(map(str, code)), [f"{name}=={version(name).partition('+')[0]}" for name in sorted(names)]
