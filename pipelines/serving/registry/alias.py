"""Registers versions, and moves the alias `champion`, one promotion at a time.

MLflow's registry cannot set an alias on a condition. But it numbers the versions of a model in one transaction, and creates each with
its tags. So a version is a ticket: a promotion creates it as `pending`, and steps back if a version with a lower number is pending. Of two
promotions at once, the one with the lower number goes on, and the other fails. Before it moves the alias, it also makes sure that it
was compared with the present champion, and afterwards, that its move was not overwritten.

No two promotions move the alias at once, as long as a request takes less than half of LEASE_SECONDS. A ticket is ignored when its
process has ended, or when it is older than that. An alias that is set by other means, such as MLflow's UI, is noticed only before and
after the move.
"""

import time
from collections.abc import Mapping, Sequence

import mlflow
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import mlflow_errors
from pipelines.tracking.run_heartbeat import DEAD_SECONDS, HEARTBEAT, describe_beat, heartbeat, is_alive

CHAMPION = "champion"
STATE, PREVIOUS = "lockstep.promotion", "lockstep.previous"
"""Tags of a version: pending, promoted or withdrawn; and the number of the champion before it, empty if there was none."""
LEASE_SECONDS = DEAD_SECONDS


def champion(client: MlflowClient, uri: str, name: str) -> ModelVersion | None:
    """The version with the alias; None if there is none."""
    with mlflow_errors(uri):
        try:
            return client.get_model_version_by_alias(name, CHAMPION)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise


def promotion_history(client: MlflowClient, uri: str, name: str) -> list[ModelVersion]:
    """The versions that were promoted, or rolled back to, the latest last."""
    with mlflow_errors(uri):
        versions = client.search_model_versions(f"name = '{name}'")
    return sorted((version for version in versions if version.tags.get(STATE) == "promoted"), key=lambda version: int(version.version))


def is_promoted(present: ModelVersion, past: Sequence[ModelVersion]) -> bool:
    """Whether the champion is the version that was promoted last, and the alias was not moved by hand."""
    return bool(past) and str(past[-1].version) == str(present.version)


def tags_after(present: ModelVersion | None, past: Sequence[ModelVersion]) -> dict[str, str]:
    """The tag of a new champion that names the one before it, where the alias was moved or removed by hand: the last promoted one."""
    if present is not None and is_promoted(present, past):
        return {}
    return {PREVIOUS: str(past[-1].version) if past else ""}


def rival(present: ModelVersion | None, past: Sequence[ModelVersion], run_id: str) -> ModelVersion | None:
    """The version that a run is compared with: the champion, or the last one of another run that passed the gates if the alias was
    removed or set to this run by hand."""
    other_runs = [version for version in past if version.run_id != run_id]
    return next(reversed(other_runs), None) if present is None or present.run_id == run_id else present


def champion_before(client: MlflowClient, uri: str, name: str, present: ModelVersion | None) -> ModelVersion | None:
    """The champion before the present one; None if there was none. If the alias was moved or removed by hand, the last promoted one. Raises
    TrackingError if that version is deleted."""
    past = promotion_history(client, uri, name)
    if present is None or not is_promoted(present, past):
        return next(reversed(past), None)
    number = present.tags.get(PREVIOUS, "")
    with mlflow_errors(uri):
        try:
            return client.get_model_version(name, number) if number else None
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise TrackingError(
                f"version {number} of {name}, the champion before version {present.version}, is deleted from the registry, so nothing is "
                "rolled back; give --run with the run that is to be the champion"
            ) from error


def promote_model(
    client: MlflowClient, uri: str, name: str, source: str, run_id: str, expected: ModelVersion | None, tags: Mapping[str, str]
) -> ModelVersion:
    """Register a version of the model at `source`, `models:/…`, and make it the champion in place of `expected`. Raises TrackingError if
    another promotion is under way or was faster, or if MLflow does not answer."""
    mlflow.set_tracking_uri(uri)  # MLflow looks for the source there, and not where the client does
    with mlflow_errors(uri):
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        model_id = source.removeprefix("models:/") if "@" not in source and source.startswith("models:/m-") else None
        state = {**tags, STATE: "pending", PREVIOUS: tags.get(PREVIOUS, str(expected.version) if expected else ""), HEARTBEAT: heartbeat()}
        ticket = client.create_model_version(name, source, run_id, tags=state, model_id=model_id)
    start = time.monotonic()
    try:
        with mlflow_errors(uri):
            _check_turn(client, name, ticket, expected, start)
            client.set_registered_model_alias(name, CHAMPION, ticket.version)
            if (champion := _champion_number(client, name)) != str(ticket.version):
                client.set_model_version_tag(name, ticket.version, STATE, "withdrawn")
                raise TrackingError(
                    f"version {ticket.version} of {name} was the champion, and version {champion or 'none'} was set in its place; run the "
                    "same command again to be compared with it"
                )
            client.set_model_version_tag(name, ticket.version, STATE, "promoted")
            for version in _earlier_pending(client, name, ticket):  # whose promotion was broken off
                if version.run_id == ticket.run_id and not is_alive(version.tags):
                    client.delete_model_version(name, version.version)
    except TrackingError as error:
        if isinstance(error.__cause__, MlflowException | OSError):
            raise TrackingError(
                f"version {ticket.version} of {name} is registered, but MLflow no longer answered, so the alias {CHAMPION} may not have "
                f"been moved to it: {error.__cause__}; run the same command again"
            ) from error
        raise
    return ticket


def _check_turn(client: MlflowClient, name: str, ticket: ModelVersion, expected: ModelVersion | None, start: float) -> None:
    busy = [version for version in _earlier_pending(client, name, ticket) if is_alive(version.tags)]
    champion = _champion_number(client, name)
    expected_champion = str(expected.version) if expected else ""
    reason = ""
    if busy:
        reason = f"run {busy[0].run_id} is being promoted as version {busy[0].version} ({describe_beat(busy[0].tags)}); run again after it"
    elif champion != expected_champion:
        reason = f"the champion is now version {champion or 'none'}, not {expected_champion or 'none'}; run again to be compared with it"
    elif time.monotonic() - start > LEASE_SECONDS / 2:
        reason = "MLflow took too long to answer; run again"
    if reason:
        client.set_model_version_tag(name, ticket.version, STATE, "withdrawn")
        raise TrackingError(f"version {ticket.version} of {name} does not become the champion: {reason}")


def _champion_number(client: MlflowClient, name: str) -> str:
    """Number of the version with the alias; empty if there is none."""
    return str(client.get_registered_model(name).aliases.get(CHAMPION, ""))


def _earlier_pending(client: MlflowClient, name: str, ticket: ModelVersion) -> list[ModelVersion]:
    versions = client.search_model_versions(f"name = '{name}'")
    return [version for version in versions if int(version.version) < int(ticket.version) and version.tags.get(STATE) == "pending"]
