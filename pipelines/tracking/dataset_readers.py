"""Finds who needs versions of a dataset: registered models that were trained on them, and runs that read them now. Finds the trainings
that have ended, too, whose checkpoints nobody needs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.errors import TrackingError
from pipelines.tracking.client import ITEMS_PER_PAGE, SQLITE, all_experiments, all_pages, all_runs, connect, mlflow_errors
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.run_heartbeat import DATASET, HEARTBEAT, is_alive
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import FOLDER, run_folder

VERSION_TAG, DIGEST_TAG = "dataset.version", "dataset.digest"
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND")
"""What MLflow answers of a run or a model that it does not have."""


@dataclass(frozen=True)
class VersionReader:
    """A model or a run that needs a version."""

    text: str
    """Who it is, and how it uses the version, as a sentence about `it`."""
    version: str
    """Name of the version; may be empty, as may the digest."""
    digest: str


@dataclass(frozen=True)
class EndedTraining:
    run_id: str
    status: str
    """MLflow's: FINISHED, FAILED or KILLED; SCHEDULED for a trial of a search that has not come to its end."""
    ended: float
    """Seconds since 1970."""
    folder: str
    """The run's directory, with its checkpoints."""


@dataclass(frozen=True)
class DatasetUse:
    """Models, runs and trainings in MLflow, as far as they are users of a dataset's versions."""

    readers: tuple[VersionReader, ...]
    blockers: tuple[str, ...]
    """Models and runs that may need any version, in words."""
    trainings: tuple[EndedTraining, ...]
    """Those of the config's experiment that have ended, deleted ones too."""


def dataset_use(config: Config) -> DatasetUse:
    """Find the users of a dataset's versions, in every experiment. Raises TrackingError if MLflow cannot be used, or is a file that does
    not exist: a new one would know of no model."""
    client = connect_existing(config.tracking.uri)
    with mlflow_errors(config.tracking.uri):
        readers, blockers = _model_readers(client, config)
        experiments = all_experiments(client)
        live_readers, live_etls = _live_runs(client, config, [experiment.experiment_id for experiment in experiments])
        own_ids = [experiment.experiment_id for experiment in experiments if experiment.name == config.experiment]
        trainings = tuple(_list_ended_trainings(client, config, own_ids)) if own_ids else ()
    return DatasetUse((*readers, *live_readers), (*blockers, *live_etls), trainings)


def connect_existing(uri: str) -> MlflowClient:
    """A client of a store that is there already. Raises TrackingError if it is a file that does not exist."""
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
        raise TrackingError(
            f"tracking.uri is {uri}, a file that does not exist, so that nobody can say which versions are needed; set the address "
            "where the trainings of this dataset are"
        )
    return connect(uri)


def unknown_runs(uri: str, run_ids: Iterable[str]) -> set[str]:
    """The runs that this MLflow does not have, not even as deleted ones. Raises TrackingError if it cannot be used."""
    client = connect_existing(uri)
    with mlflow_errors(uri):
        return {run_id for run_id in run_ids if run_id and _find_run(client, run_id) is None}


def _model_readers(client: MlflowClient, config: Config) -> tuple[list[VersionReader], list[str]]:
    """The versions of all registered models whose origin is known; and in words, those of the config's own model whose origin is not."""
    aliases: dict[tuple[str, str], list[str]] = {}
    for model in all_pages(lambda token: client.search_registered_models(max_results=ITEMS_PER_PAGE, page_token=token)):
        for alias, number in model.aliases.items():
            aliases.setdefault((model.name, str(number)), []).append(alias)
    find_run = cache(lambda run_id: _find_run(client, run_id))
    readers, blockers = [], []
    for version in all_pages(lambda token: client.search_model_versions(max_results=ITEMS_PER_PAGE, page_token=token)):
        names = ", ".join(sorted(aliases.get((version.name, str(version.version)), [])))
        text = f"version {version.version} of the model {version.name}{f' ({names})' if names else ''}"
        run_id = version.run_id or _source_run(client, version)
        run = find_run(run_id) if run_id else None
        tags = {**(run.data.tags if run else {}), **{name: value for name, value in version.tags.items() if name == DIGEST_TAG and not run}}
        if tags.get(VERSION_TAG) or tags.get(DIGEST_TAG):
            readers.append(VersionReader(f"{text} was trained on it", tags.get(VERSION_TAG, ""), tags.get(DIGEST_TAG, "")))
        elif run is None and version.name == (config.registry.model or config.name):
            blockers.append(f"{text}, whose run {run_id or 'nobody knows'} is gone, may have been trained on it")
    return readers, blockers


def _source_run(client: MlflowClient, version: ModelVersion) -> str:
    """The run that logged the model of a registered version; empty if that is not known."""
    source = f"models:/{version.model_id}" if getattr(version, "model_id", None) else str(version.source or "")
    if not source.startswith("models:/m-"):
        return ""
    try:
        model: LoggedModel = client.get_logged_model(source.removeprefix("models:/").partition("/")[0])
    except MlflowException as error:
        if error.error_code in _ABSENT:
            return ""
        raise
    return str(model.source_run_id or "")


def _live_runs(client: MlflowClient, config: Config, experiments: list[str]) -> tuple[list[VersionReader], list[str]]:
    """The runs of all experiments that are RUNNING, or whose process lives; and in words, the ETLs among them that write to this dataset,
    which may share the parts of any version. An ETL that was killed stays RUNNING, but needs nothing."""
    runs: dict[str, Run] = {}
    for condition in ("attributes.status = 'RUNNING'", f"tags.`{HEARTBEAT}` LIKE '{{%'"):
        for run in all_runs(client, experiments, condition):
            runs[run.info.run_id] = run
    readers, etls = [], []
    for run_id, run in runs.items():
        tags, has_process = run.data.tags, is_alive(run.data.tags)
        if not has_process and run.info.status != "RUNNING":
            continue
        if tags.get(VERSION_TAG) or tags.get(DIGEST_TAG):
            readers.append(VersionReader(f"run {run_id}, which is RUNNING, reads it", tags.get(VERSION_TAG, ""), tags.get(DIGEST_TAG, "")))
        elif has_process and tags.get(KIND) == "etl" and tags.get(DATASET) == config.dataset.path:
            etls.append(f"run {run_id} makes a version, which may share its parts")
    return readers, etls


def _list_ended_trainings(client: MlflowClient, config: Config, experiments: list[str]) -> Iterator[EndedTraining]:
    for run in all_runs(client, experiments, f"tags.`{FOLDER}` LIKE '%'"):
        run_id, status, end_time, tags = run.info.run_id, run.info.status, run.info.end_time, run.data.tags
        if status == "RUNNING" or end_time is None or is_alive(tags):
            continue
        if status == "SCHEDULED":  # a trial that its search may train further
            search = _find_run(client, tags[PARENT]) if tags.get(PARENT) else None
            if search is None or search.info.status == "RUNNING" or search.info.end_time is None:
                continue
            end_time = max(end_time, search.info.end_time)
        folder = run_folder(config, run_id, tags)
        if folder.rstrip("/").endswith(f"-{run_id[:12]}"):  # a tag can be edited
            yield EndedTraining(run_id, status, end_time / 1_000, folder)


def _find_run(client: MlflowClient, run_id: str) -> Run | None:
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in _ABSENT:
            return None
        raise
