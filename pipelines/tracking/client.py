"""Connects to MLflow: a server, or an SQLite file for a single machine."""

import fcntl
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Param
from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.config.effects import has_effect
from pipelines.config.messages.words import name_list
from pipelines.errors import TrackingError
from pipelines.runtime.compat.mlflow import defer_signals_in_sessions

SQLITE = "sqlite:///"
_SERVERS = ("http://", "https://", "databricks")
MLFLOW = {
    # The default is seven retries in four minutes, during which nothing else would be sent.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    # MLflow shows three bars for each of our few small files.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Settings of MLflow, unless the environment sets them."""
_REFUSED = re.compile(r"error code 40[13]\b|\b(?:unauthori[sz]ed|unauthenticated|forbidden)\b", re.IGNORECASE)
"""MLflow's messages about a server that refuses. Of an answer in JSON, such as a gateway's, they leave out the code."""
METRICS_PER_CALL = 1_000
"""As many as MLflow takes, and so are these."""
_PARAMS_PER_CALL, _PARAM_LENGTH = 100, 6_000
_USUAL: Any = {"strategy": {"kind"}, **dict.fromkeys(("optimizer", "lr", "global_batch", "epochs", "seed", "shards"), True)}
"""Settings of `train` that every training logs, as pydantic includes them."""


def connect(uri: str) -> MlflowClient:
    """A client of the server or file at `uri`. Settings of MLflow in the environment override ours."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    for name, value in MLFLOW.items():
        os.environ.setdefault(name, value)
    with mlflow_errors(uri):
        if not uri.startswith(_SERVERS):
            defer_signals_in_sessions()
        if not uri.startswith(SQLITE):
            return MlflowClient(uri)
        with _folder_lock(Path(uri.removeprefix(SQLITE)).parent):
            return MlflowClient(uri)


def connect_early(uri: str) -> None:
    """Connect to an SQLite file that exists, while the caller would wait anyway: MLflow keeps the connection. Whoever uses the file meets
    its errors."""
    if uri.startswith(SQLITE) and Path(uri.removeprefix(SQLITE)).exists():
        with suppress(TrackingError):
            connect(uri)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: of two processes that create the tables of an SQLite file at once, one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def mlflow_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow into a TrackingError that names the address."""
    try:
        yield
    except (MlflowException, OSError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrackingError(f"tracking.uri is {uri}, which cannot be used: {first_line}; {_remedy(uri, error)}") from error


def _remedy(uri: str, error: MlflowException | OSError) -> str:
    """Suggest what to do about an error: MLflow's codes distinguish a server that refuses from one that does not answer."""
    code = getattr(error, "error_code", "")
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED") or _REFUSED.search(str(error)):
        return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, of someone who may"
    if uri.startswith(SQLITE):
        return "set tracking.uri to sqlite:/// with a file in a folder that can be written, or to the address of a server"
    return "start the server, or set another address"


def check_host(uri: str, driver_host: str) -> None:
    """Raise TrackingError if this machine would write to another SQLite file than the driver."""
    if uri.startswith(SQLITE) and socket.gethostname() != driver_host:
        raise TrackingError(
            f"tracking.uri is {uri}, a file on {driver_host}, but a worker runs on {socket.gethostname()}; "
            "set the address of an MLflow server that all machines can reach"
        )


def ensure_experiment(client: MlflowClient, config: Config) -> str:
    """Return the ID of the config's experiment, and create it if necessary.

    With an SQLite file, artifacts go to `mlartifacts` beside it; the default of MLflow depends on the working directory.
    """
    uri, name = config.tracking.uri, config.experiment
    with mlflow_errors(uri):
        if (experiment := client.get_experiment_by_name(name)) is None:
            place = Path(uri.removeprefix(SQLITE)).absolute().parent / "mlartifacts" / folder_name(name)
            try:
                return str(client.create_experiment(name, place.as_uri() if uri.startswith(SQLITE) else None))
            except MlflowException as error:
                experiment = client.get_experiment_by_name(name)  # another process may have created it
                if experiment is None:
                    raise error
    if experiment.lifecycle_stage == LifecycleStage.DELETED:
        raise TrackingError(
            f"experiment {name} at {uri} is deleted; restore it with `MLFLOW_TRACKING_URI={uri} mlflow experiments restore "
            f"--experiment-id {experiment.experiment_id}`, or set tracking.experiment to another name"
        )
    return str(experiment.experiment_id)


def folder_name(experiment: str) -> str:
    """The name of the folder of an experiment's artifacts, different for every two names."""
    name = re.sub(r"[^\w\-. ]", "_", experiment, flags=re.ASCII)
    return name if name == experiment else f"{name}-{sha256(experiment.encode()).hexdigest()[:8]}"


def key(name: str) -> str:
    """The name with `_` in place of what MLflow does not allow in keys: other characters, and parts between slashes as in a path."""
    parts = re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII).split("/")
    return "/".join(re.sub(r"^(|\.|\.\..*)$", lambda part: f"_{part[0][2:]}", part) for part in parts)


def log_params(client: MlflowClient, run_id: str, settings: Mapping[str, Any]) -> None:
    """Log settings as parameters. All of them are in config.json, which every run has."""
    params = [Param(name, value) for name, value in param_values(settings).items()]
    for start in range(0, len(params), _PARAMS_PER_CALL):
        client.log_batch(run_id, params=params[start : start + _PARAMS_PER_CALL], synchronous=True)


def param_values(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as MLflow's parameters, by their keys there; two patterns of columns may have one key."""
    return {key(name)[:250]: str(value)[:_PARAM_LENGTH] for name, value in settings.items()}


def training_settings(config: Config) -> dict[str, Any]:
    """Settings that decide a training, by dotted names such as `train.lr`: the usual ones, and all that the config gives of `task` and
    `train`, without those that have no effect or no value."""
    explicit = config.model_dump(mode="json", by_alias=True, include={"task", "train"}, exclude=config.placement, exclude_unset=True)
    usual = config.model_dump(mode="json", include={"task": {"kind"}, "train": _USUAL})
    settings = flatten(usual) | flatten(explicit)
    return {name: value for name, value in settings.items() if value not in (None, "") and has_effect(config, name)}


def etl_settings(config: Config) -> dict[str, Any]:
    """Settings that decide a dataset version: source and dataset as the config gives them, the columns as their number."""
    explicit = config.model_dump(
        mode="json", by_alias=True, include={"source", "dataset"}, exclude={"dataset": {"features"}}, exclude_unset=True
    )
    features = config.dataset.features
    return {**flatten(explicit), "dataset.features": len(features) if config.dataset.is_resolved else name_list(features)}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {prefix + name: value})
    return flat
