"""The run of a training, which the driver opens or continues."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient, entities
from mlflow.artifacts import download_artifacts
from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.exceptions import MlflowException
from pyarrow.fs import FileType

from pipelines.config import Config
from pipelines.data.versions import storage
from pipelines.data.versions.versions import Version
from pipelines.errors import DatasetError, TrackingError
from pipelines.tracking.client import connect, ensure_experiment, mlflow_errors
from pipelines.tracking.descriptions import HIDDEN, SPARK_APPLICATION, run_name
from pipelines.tracking.models import find_model
from pipelines.tracking.params_and_tags import log_params, origin_tags, param_values, training_settings
from pipelines.tracking.run_heartbeat import HEARTBEAT, MODEL_DIGEST, check_is_dead, correct_dead_runs, heartbeat
from pipelines.tracking.tracked_run import MlflowRun, create_run

log = logging.getLogger(__name__)

IDENTITY, FOLDER = "mlflow.lockstep.identity", "mlflow.lockstep.folder"
RESULT = "result.json"
"""The file of a finished training that holds its model, its best epoch's metrics, its rows and its seconds."""
UNDEFINED, REMARKS = "lockstep.undefined", "lockstep.remarks"
"""Tags of a finished training: the reasons why metrics have no value, as JSON by their names; and remarks on its metrics, in lines."""
ORIGIN_RUNS = "origin.runs"
"""Tag with the IDs of the runs whose models the model is made of."""
PLANNED_LAYOUT, PLANNED_SECONDS = "plan.layout", "plan.step_seconds"
MEASURED_SECONDS, BETTER_LAYOUT = "measured.step_seconds", "plan.better_layout"
"""Tags of a training that was planned: its layout, seconds of a step as planned and as measured, and one that would be faster."""
NON_FINITE, IS_TRAINED = "lockstep.non_finite", "lockstep.is_trained"
"""Tags of a training that was to stop at an epoch: the error that every attempt would repeat, and that no epoch is left to train."""
_DIGEST_LENGTH = 32
"""MLflow accepts at most 36 characters for the digest of a dataset."""


@dataclass(frozen=True)
class TrainingRun(MlflowRun):
    folder: str
    """Folder of the checkpoints."""
    is_resumed: bool
    """Whether an earlier command began the run."""


def open_training(config: Config, version: Version, tags: Mapping[str, str], birth_tags: Mapping[str, str] | None = None) -> TrainingRun:
    """Begin or resume the run of this command. Of a run that begins, `birth_tags` are tags too.

    The identity of a run consists of the settings that determine the model, and the digest of the dataset. An interrupted run with
    the same identity is resumed; if it is finished, a new run begins. Raises TrackingError if it is alive.
    """
    uri = config.tracking.uri
    client = connect(uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(uri):
        earlier_run = _find_resumable(client, experiment, training_identity(config, version))
        correct_dead_runs(client, experiment, config.dataset.path)
        if earlier_run:
            run_id = earlier_run.info.run_id
            check_is_dead(earlier_run, "this model on this dataset")
            client.update_run(run_id, status="RUNNING")
            folder = run_folder(config, run_id, earlier_run.data.tags)
            record_resume(client, config, earlier_run, {**tags, FOLDER: folder, HEARTBEAT: heartbeat()})
            return TrainingRun(client, uri, run_id, folder, is_resumed=True)
        return _begin(client, config, version, experiment, {**tags, **(birth_tags or {}), IDENTITY: training_identity(config, version)})


def resumable_folder(config: Config, version: Version) -> str:
    """Folder of the run that this command would resume; empty if it would begin a new one. Raises TrackingError."""
    client = connect(config.tracking.uri)
    with mlflow_errors(config.tracking.uri):
        experiment = client.get_experiment_by_name(config.experiment)
        run = experiment and _find_resumable(client, experiment.experiment_id, training_identity(config, version))
    return run_folder(config, run.info.run_id, run.data.tags) if run else ""


def find_finished_training(config: Config, version: Version) -> tuple[str, bytes] | None:
    """ID of the newest run of this command, and its file RESULT; None if it is not finished, has no model any more, or no such file.

    Raises TrackingError."""
    client = connect(config.tracking.uri)
    with mlflow_errors(config.tracking.uri):
        experiment = client.get_experiment_by_name(config.experiment)
        run = _newest_training(client, experiment.experiment_id, training_identity(config, version)) if experiment else None
        if run is None or run.info.status != "FINISHED":
            return None
        try:
            find_model(client, run)
            with TemporaryDirectory() as folder:
                return run.info.run_id, Path(client.download_artifacts(run.info.run_id, RESULT, folder)).read_bytes()
        except (TrackingError, MlflowException, OSError):
            return None


def training_identity(config: Config, version: Version) -> str:
    """By which the trainings of one model on one dataset are found."""
    return f"{config.model_identity[:16]}-{version.digest[:16]}"


def _find_resumable(client: MlflowClient, experiment: str, identity: str) -> entities.Run | None:
    """The newest run with this identity, unless it is finished."""
    run = _newest_training(client, experiment, identity)
    return run if run and run.info.status != "FINISHED" else None


def _newest_training(client: MlflowClient, experiment: str, identity: str) -> entities.Run | None:
    newest = ["attributes.start_time DESC"]
    runs = [
        run
        for name in (IDENTITY, IDENTITY.removeprefix(HIDDEN))
        for run in client.search_runs([experiment], f"tags.`{name}` = '{identity}'", order_by=newest, max_results=1)
    ]
    return max(runs, key=lambda run: run.info.start_time, default=None)


def _begin(client: MlflowClient, config: Config, version: Version, experiment: str, tags: Mapping[str, str]) -> TrainingRun:
    manifest = version.manifest
    try:
        spark_application = client.get_run(manifest.run_id).data.tags.get(SPARK_APPLICATION, "")
    except MlflowException:  # the run of the ETL is in another MLflow
        spark_application = ""
    origin = {**origin_tags(config, version), SPARK_APPLICATION: spark_application, "strategy": config.train.strategy.kind}
    origin |= {ORIGIN_RUNS: ", ".join(config.task.origins)} if config.task.origins else {}
    run_id = create_run(client, config, experiment, {**origin, **tags})
    folder = run_folder(config, run_id, {})
    client.set_tag(run_id, FOLDER, folder)
    log_params(client, run_id, training_settings(config))
    log_dataset(client, run_id, config, version)
    client.log_dict(run_id, manifest.profile, "profile.json")
    return TrainingRun(client, config.tracking.uri, run_id, folder, is_resumed=False)


def record_resume(client: MlflowClient, config: Config, run: entities.Run, tags: Mapping[str, str], kind: str = "") -> None:
    """Record what a command that resumes a run gives: these tags and its own, its name, and its settings. Those that are no part of the
    identity may differ from the first command's."""
    run_id = run.info.run_id
    for name, value in {**config.tracking.tags, **tags}.items():
        client.set_tag(run_id, name, value)
    if config.tracking.run_name and (name := run_name(config, kind)) != run.info.run_name:
        client.update_run(run_id, name=name)
    params = param_values(training_settings(config))
    for name in [name for name, value in params.items() if run.data.params.get(name, value) != value]:
        log.warning(
            "run %s keeps the param %s of its first command, which MLflow cannot change; config.json has the new value", run_id, name
        )
    log_params(client, run_id, {name: value for name, value in params.items() if name not in run.data.params})
    client.log_text(run_id, config.model_dump_json(indent=1), "config.json")


def run_folder(config: Config, run_id: str, tags: Mapping[str, str]) -> str:
    """Folder of a run's checkpoints: that of its tags if it exists, since it may be on another machine or in another home."""
    logged_folder = tags.get(FOLDER)
    default_folder = f"{config.train.storage.rstrip('/')}/{config.name}-{run_id[:12]}"
    if logged_folder is None or logged_folder == default_folder or _is_there(logged_folder):
        return logged_folder or default_folder
    log.warning("%s, the folder of run %s, does not exist any more; its folder is now %s", logged_folder, run_id, default_folder)
    return default_folder


def _is_there(folder: str) -> bool:
    try:
        filesystem, path = storage.locate(folder)
        return bool(filesystem.get_file_info(path).type == FileType.Directory)
    except (DatasetError, OSError):
        return False


def log_dataset(client: MlflowClient, run_id: str, config: Config, version: Version) -> None:
    """Log the dataset version as the input of a run, and its manifest."""
    profile = {"rows": {split: version.rows(split) for split in version.manifest.splits}}
    dataset = Dataset(
        config.name, version.digest[:_DIGEST_LENGTH], "lockstep", json.dumps({"uri": version.root}), profile=json.dumps(profile)
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])
    client.log_text(run_id, version.manifest.to_json().decode(), "manifest.json")


def find_run_folder(uri: str, run_or_job: str) -> str:
    """The folder of a training, named by its run's id or by the job that Ray took it as. Raises TrackingError if there is none."""
    client = connect(uri)
    with mlflow_errors(uri):
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        quoted = run_or_job.replace("'", "")
        by_id = client.search_runs(experiments, f"attributes.run_id = '{quoted}'", max_results=1)
        by_job = [] if by_id else client.search_runs(experiments, f"tags.`ray.submission_id` = '{quoted}'", max_results=1)
    for run in [*by_id, *by_job]:
        if folder := run.data.tags.get(FOLDER):
            return str(folder)
    raise TrackingError(f"{uri} has no training {run_or_job!r}; use the id of its run, or the name of its job, or the folder of the run")


def reasons(tags: Mapping[str, str]) -> dict[str, str]:
    """Read from a run's tags why metrics have no value, by their names."""
    try:
        return dict(json.loads(tags.get(UNDEFINED, "{}")))
    except (TypeError, ValueError):  # somebody has edited the tag
        return {}


def download_weights(uri: str, run_id: str) -> tuple[list[bytes], str]:
    """The weights files of the model of a run, and the digest in its tags. Raises TrackingError if the run has no model."""
    client = connect(uri)
    try:
        run = client.get_run(run_id)
        artifacts = f"{find_model(client, run).artifact_location}/artifacts"
        with TemporaryDirectory() as folder:
            path = download_artifacts(artifact_uri=artifacts, dst_path=folder, tracking_uri=uri)
            files = sorted(Path(path).glob("weights*.safetensors"))
            if not files:
                raise FileNotFoundError(f"{artifacts} has no weights.safetensors")
            return [file.read_bytes() for file in files], run.data.tags.get(MODEL_DIGEST, "")
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"train.init_from is {run_id}, whose weights cannot be read from {uri}: {str(error).splitlines()[0]}; "
            "use a run that has its artifacts"
        ) from error
