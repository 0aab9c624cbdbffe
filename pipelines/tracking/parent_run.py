"""A run in which the trainings of one command are runs: of a cross-validation, or of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tracking.client import connect, ensure_experiment, mlflow_errors
from pipelines.tracking.params_and_tags import log_params, origin_tags, training_settings
from pipelines.tracking.run_heartbeat import HEARTBEAT, check_is_dead, correct_dead_runs, heartbeat
from pipelines.tracking.tracked_run import MlflowRun, create_run
from pipelines.tracking.training import log_dataset, record_resume

PARENT = "mlflow.parentRunId"
"""MLflow's own tag for the run that a run is in."""
MOST_RUNS = 10_000
"""Of the trainings in a run, those that were interrupted included."""


@dataclass(frozen=True)
class ParentRun(MlflowRun):
    """A run in which trainings are runs."""

    experiment_id: str
    is_resumed: bool
    """Whether an earlier command began the run."""


OneParentRun = TypeVar("OneParentRun", bound=ParentRun)


@dataclass(frozen=True)
class ParentKind:
    """The properties of one kind of such runs."""

    kind: str
    """In their tag KIND."""
    identity_tag: str
    work: str
    """What an earlier command that is alive is at work on, in an error."""


def open_parent_run(
    run_class: type[OneParentRun],
    parent_kind: ParentKind,
    config: Config,
    version: Version,
    identity: str,
    tags: Mapping[str, str],
    params: Mapping[str, str] | None = None,
) -> OneParentRun:
    """Begin the run of this command, or resume one of the same `identity` that is not finished. A run that begins logs `params` beside the
    settings of its trainings. Raises TrackingError if the run is alive."""
    uri, kind = config.tracking.uri, parent_kind.kind
    client = connect(uri)
    experiment = ensure_experiment(client, config)
    with mlflow_errors(uri):
        condition = f"tags.`{parent_kind.identity_tag}` = '{identity}'"
        newest = client.search_runs([experiment], condition, order_by=["attributes.start_time DESC"], max_results=1)
        correct_dead_runs(client, experiment, config.dataset.path)
        if newest and newest[0].info.status != "FINISHED":
            run_id = newest[0].info.run_id
            check_is_dead(newest[0], parent_kind.work)
            client.update_run(run_id, status="RUNNING")
            record_resume(client, config, newest[0], {**tags, HEARTBEAT: heartbeat()}, kind)
            return run_class(client, uri, run_id, experiment, is_resumed=True)
        strategy = {"strategy": config.train.strategy.kind}
        run_id = create_run(
            client, config, experiment, {**origin_tags(config, version), **tags, parent_kind.identity_tag: identity, **strategy}, kind
        )
        log_params(client, run_id, {**training_settings(config), **(params or {})})
        log_dataset(client, run_id, config, version)
    return run_class(client, uri, run_id, experiment, is_resumed=False)
