"""Connects to MLflow: a server, or an SQLite file for a single machine."""

import fcntl
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Experiment, LifecycleStage, Run, ViewType
from mlflow.exceptions import MlflowException

from pipelines.config import Config
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
ITEMS_PER_PAGE = 1_000
"""As many runs, models and experiments as MLflow gives at once."""


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


def all_pages(fetch: Callable[[str | None], Any]) -> Iterator[Any]:
    """The items of all pages of a search in MLflow. `fetch` gets the page of a token, and the first one by None."""
    token = None
    while True:
        page = fetch(token)
        yield from page
        if not (token := page.token):
            return


def all_experiments(client: MlflowClient) -> list[Experiment]:
    """All experiments, deleted ones too."""
    return list(all_pages(lambda token: client.search_experiments(ViewType.ALL, ITEMS_PER_PAGE, page_token=token)))


def all_runs(client: MlflowClient, experiment_ids: list[str], condition: str) -> Iterator[Run]:
    """All runs of the experiments for which a filter of MLflow holds, deleted ones too."""
    return all_pages(lambda token: client.search_runs(experiment_ids, condition, ViewType.ALL, ITEMS_PER_PAGE, page_token=token))


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
    if uri.startswith(SQLITE) and {"'", '"'} <= {*str(Path.cwd())}:
        return f"MLflow takes no working folder with both kinds of quotes, as {Path.cwd()} has; run from another folder"
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
