"""The run of a search, in which its trials are runs; and what trainings have reached by epoch, whoever began them."""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256

from mlflow import MlflowClient
from mlflow.entities import Metric, Run

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.descriptions import metric_name
from pipelines.tracking.params_and_tags import flatten
from pipelines.tracking.parent_run import MOST_RUNS, PARENT, ParentKind, ParentRun, open_parent_run
from pipelines.tracking.run_heartbeat import DEAD_SECONDS, HEARTBEAT, describe_beat, is_alive
from pipelines.tracking.training import FOLDER, IDENTITY, IS_TRAINED, NON_FINITE, TrainingRun, run_folder, training_identity

SEARCH = "search"
"""The kind of these runs, in their tag KIND."""
TRIAL, RUNG = "trial", "rung"
"""Tags of a trial's training: its number in the search that began it, and the number of the rung that it was trained to last."""
FORKED_FROM, FORK_EPOCH = "forked.from", "forked.epoch"
"""Tags of a training that begins with a part of another one: the ID of its run, and the epochs that both have."""
_KIND = ParentKind(SEARCH, "mlflow.lockstep.search", "this search")
_EPOCH = "validation/epoch"
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class EpochCurve:
    """The metric of a training by epoch."""

    run_id: str
    values: tuple[float | None, ...]
    """The metric after each epoch, the first one first; None where it is not defined."""
    is_trained: bool
    """Whether no epoch is left to train: the training is finished, or was stopped early by its own rule."""
    error: str
    """What every attempt to train further would end with; empty if nothing."""
    parent: str
    """The run that it is in; empty if it was begun by hand."""
    status: str

    def is_decided(self, epochs: int) -> bool:
        """Whether nothing is left to train until that epoch: it has been reached, or can never be."""
        return len(self.values) >= epochs or self.is_trained or bool(self.error)


@dataclass(frozen=True)
class SearchRun(ParentRun):
    """The run of a search."""

    def trial_runs(self, condition: str = "") -> list[Run]:
        """The trainings that this search has begun, and of which MLflow's `condition` holds."""
        filter_string = f"tags.`{PARENT}` = '{self.run_id}'{f' AND {condition}' if condition else ''}"
        with mlflow_errors(self.uri):
            return list(self.client.search_runs([self.experiment_id], filter_string, max_results=MOST_RUNS))

    def wait_for_trials(self) -> None:
        """Wait until no process of an earlier command trains a trial. Raises TrackingError if one still does after a minute."""
        deadline = time.monotonic() + DEAD_SECONDS
        while alive := [run for run in self.trial_runs(f"tags.`{HEARTBEAT}` LIKE '{{%'") if is_alive(run.data.tags)]:
            if time.monotonic() > deadline:
                beat = describe_beat(alive[0].data.tags)
                raise TrackingError(
                    f"run {alive[0].info.run_id}, a trial of this search, is still trained by {beat}; stop it, and run again"
                )
            time.sleep(_POLL_SECONDS)

    def end_trials(self, failed_run_ids: Collection[str]) -> None:
        """Set the status of trials that go no further, which were stopped early, also where their process was killed meanwhile. Those that
        failed stay so."""
        with mlflow_errors(self.uri):
            for run in self.trial_runs("attributes.status != 'FINISHED' AND attributes.status != 'FAILED'"):
                if run.info.run_id not in failed_run_ids and not is_alive(run.data.tags):
                    self.client.set_terminated(run.info.run_id, "KILLED", run.info.end_time or None)

    def tag_trial(self, run_id: str, rung: int) -> None:
        """Record to which rung a trial was trained."""
        with mlflow_errors(self.uri):
            self.client.set_tag(run_id, RUNG, str(rung))

    def live_folders(self, config: Config) -> list[str]:
        """The folders of the trainings under way, by which they are asked to save and stop."""
        runs = self.trial_runs("attributes.status = 'RUNNING'")
        return [run_folder(config, run.info.run_id, run.data.tags) for run in runs if run.data.tags.get(FOLDER)]


def open_search(config: Config, version: Version, tags: Mapping[str, str]) -> SearchRun:
    """Begin the run of this command, or resume one of the same settings and dataset that is not finished. Raises TrackingError if that is
    alive."""
    settings = config.tune.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"space"})
    space = {name: dimension.model_dump(mode="json", by_alias=True, exclude_none=True) for name, dimension in config.tune.space.items()}
    params = {**flatten({"tune": settings}), **flatten({"tune.space": space})}
    return open_parent_run(SearchRun, _KIND, config, version, _search_identity(config, version), tags, params)


def _search_identity(config: Config, version: Version) -> str:
    settings = json.dumps(config.tune.model_dump(mode="json", by_alias=True, exclude={"workers"}), sort_keys=True)
    return f"{training_identity(config, version)}-{sha256(settings.encode()).hexdigest()[:16]}"


def read_curve(config: Config, version: Version, metric: str) -> EpochCurve | None:
    """The curve of this model's trainings on this dataset: of the one with most epochs, of several the one that began first. None if
    there is none.

    They may be of this search, of another one, or begun by hand; finished, stopped early or interrupted. Raises TrackingError."""
    client = connect(config.tracking.uri)
    with mlflow_errors(config.tracking.uri):
        experiment = client.get_experiment_by_name(config.experiment)
        identity = training_identity(config, version)
        condition, oldest_first = f"tags.`{IDENTITY}` = '{identity}'", ["attributes.start_time ASC"]
        runs = client.search_runs([experiment.experiment_id], condition, order_by=oldest_first) if experiment else []
        curves = [_read_curve(client, run, metric) for run in runs]
    return max(curves, key=lambda curve: (curve.is_trained, len(curve.values)), default=None)


def training_folder(config: Config, run_id: str) -> str:
    """The folder of a training's checkpoints. Raises TrackingError."""
    client = connect(config.tracking.uri)
    with mlflow_errors(config.tracking.uri):
        return run_folder(config, run_id, client.get_run(run_id).data.tags)


def copy_points(run: TrainingRun, source_run_id: str, last_step: int) -> None:
    """Give a training the curves of another one until that step. Raises TrackingError."""
    points: dict[tuple[int, int], dict[str, float]] = {}
    with mlflow_errors(run.uri):
        source = run.client.get_run(source_run_id)
        for name in source.data.metrics:
            if metric_name(name).startswith("system/"):  # of a machine, whose steps are other ones
                continue
            for point in _history(run.client, source, name):
                if point.step <= last_step:
                    points.setdefault((point.step, point.timestamp), {})[name] = point.value
    run.send([(stamp, step, values) for (step, stamp), values in sorted(points.items())])


def _read_curve(client: MlflowClient, run: Run, metric: str) -> EpochCurve:
    run_id, tags = run.info.run_id, run.data.tags
    epochs = {point.step: int(point.value) for point in _history(client, run, _EPOCH)}
    values = {epochs[point.step]: point.value for point in _history(client, run, f"validation/{metric}") if point.step in epochs}
    return EpochCurve(
        run_id=run_id,
        values=tuple(values.get(epoch) for epoch in range(1, max(epochs.values(), default=0) + 1)),
        is_trained=run.info.status == "FINISHED" or IS_TRAINED in tags,
        error=tags.get(NON_FINITE, ""),
        parent=tags.get(PARENT, ""),
        status=run.info.status,
    )


def _history(client: MlflowClient, run: Run, name: str) -> list[Metric]:
    return list(client.get_metric_history(run.info.run_id, name)) if name in run.data.metrics else []
