"""From a run to a decision: it is promoted, or refused with the gates that do not hold. Every decision is recorded."""

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.errors import ConfigError, RefusedError, TrackingError
from pipelines.etl.run import freed
from pipelines.serving.model.model import download_model
from pipelines.serving.model.process import ModelProcess
from pipelines.serving.registry import alias, measure
from pipelines.serving.registry.candidate import Candidate, candidate, commit, lineage
from pipelines.serving.registry.gates import Gate, Judgement, bounds, turned_off
from pipelines.serving.registry.rows import test_rows
from pipelines.spark.driver import driver_errors
from pipelines.spark.session import session
from pipelines.tracking.client import connect, reaching
from pipelines.tracking.git import GIT_COMMIT, git_commit
from pipelines.tracking.recorded import check_is_not_deleted
from pipelines.tracking.training import reasons

log = logging.getLogger(__name__)

DECISION = "lockstep.decision"
"""Tag of a run and of a version."""
_OF_ROWS = ("sources", "skew", "champion", "slices", "latency")
"""The gates that need the test rows, in their order."""


@dataclass(frozen=True)
class Decision:
    """What `promote` or `rollback` has decided."""

    name: str
    """Of the registered model."""
    version: str
    run_id: str
    text: str


@driver_errors()
def promote(config: Config, run_id: str) -> Decision:
    """Make the model of a run the champion if it passes every gate of `config.registry`.

    Raises RefusedError with the gates that do not hold, TrackingError if another promotion is under way or was faster.
    """
    uri, name = config.tracking.uri, config.registry.model or config.name
    client = connect(uri)
    found = candidate(config, run_id)
    present, history = alias.champion(client, uri, name), alias.history(client, uri, name)
    if present is not None and present.run_id == run_id and alias.is_promoted(present, history):
        return Decision(name, str(present.version), run_id, f"run {run_id} is the champion of {name} already, as version {present.version}")
    # Whoever set or removed the alias by hand has skipped the gates: then the run is compared with the last champion that passed them.
    rival = alias.rival(present, history, run_id)
    with TemporaryDirectory(prefix="lockstep-registry-") as folder:
        judgement = _judged(config, found, rival, Path(folder))
    record: dict[str, Any] = {
        "run": run_id,
        "model": found.uri,
        "champion": str(present.version) if present else None,
        **judgement.plain(),
        "settings": config.registry.model_dump(mode="json"),
        GIT_COMMIT: git_commit(),
    }
    if failed := judgement.failures(config.registry.required):
        told = f"{'; '.join(failed)}; {judgement}"
        _record(client, uri, run_id, {**record, "decision": "refused"}, f"refused: {told}")
        raise RefusedError(f"run {run_id} does not become the champion of {name}: {told}")
    tags = {"dataset.digest": found.version.digest, **alias.tags_after(present, history)}
    version = alias.promoted(client, uri, name, found.uri, run_id, present, tags)
    before = f"version {present.version}" if present else "no champion"
    if config.registry.compare and rival is not None and rival is not present:
        before += f", compared with version {rival.version}, which was promoted last"
    text = f"run {run_id} is the champion of {name} as version {version.version}, after {before}; {judgement}"
    _record(client, uri, run_id, {**record, "decision": "promoted", "version": str(version.version)}, text, version)
    return Decision(name, str(version.version), run_id, text)


def rollback(config: Config) -> Decision:
    """Make the champion before the present one the champion again, as a new version: where the alias was moved by hand, the one that was
    promoted last. Raises TrackingError if there is none, or if it or its run is deleted."""
    uri, name = config.tracking.uri, config.registry.model or config.name
    client = connect(uri)
    present = alias.champion(client, uri, name)
    previous = alias.before(client, uri, name, present)
    if previous is None:
        raise TrackingError(f"{name} has no champion before version {present.version if present else 'none'}, so nothing to roll back to")
    _check_run(client, uri, previous)
    replaced = str(present.version) if present else ""
    tags = {alias.PREVIOUS: previous.tags.get(alias.PREVIOUS, ""), "lockstep.rollback_of": replaced}
    source = f"models:/{previous.model_id}" if previous.model_id else previous.source
    run_id = str(previous.run_id)
    version = alias.promoted(client, uri, name, str(source), run_id, present, tags)
    again = f"run {run_id}, version {previous.version} of {name}, is the champion again"
    text = f"{again} as version {version.version}, after {f'version {replaced}' if replaced else 'no champion'}"
    record = {"run": run_id, "champion": replaced or None, "decision": "rolled back", "version": str(version.version)}
    _record(client, uri, run_id, record, text, version)
    return Decision(name, str(version.version), run_id, text)


def _check_run(client: MlflowClient, uri: str, version: ModelVersion) -> None:
    """Raises TrackingError if the version's run is deleted: the decision could not be recorded after the alias has moved."""
    with reaching(uri):
        try:
            run = client.get_run(str(version.run_id))
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise TrackingError(
                f"version {version.version} of {version.name} does not become the champion again: its run {version.run_id} is gone from "
                f"{uri}; give --run with the run that is to be the champion"
            ) from error
    check_is_not_deleted(uri, run)


def _judged(config: Config, found: Candidate, rival: ModelVersion | None, folder: Path) -> Judgement:
    """The gates. Spark starts only if those that need no rows hold."""
    settings, uri = config.registry, config.tracking.uri
    no_rival = "there is no other champion to compare with" if settings.compare else "registry.compare is false"
    not_asked = turned_off(settings, None if rival and settings.compare else no_rival)
    target = _target(config, found, rival)
    ours = download_model(uri, found.uri, folder / "candidate")
    with ModelProcess(ours, "query") as model:
        about = model.about
    judgement = Judgement()
    judgement.add("bounds", bounds(settings, found.metrics, reasons(found.tags)), "registry.at_least and registry.at_most are empty")
    judgement.add("size", measure.of_files(settings, ours), "registry.size_mb is not set")
    judgement.add("lineage", lineage(found, about["digest"], about["dataset"]), "")
    judgement.add("commit", commit(config, found), "registry.clean_git is false")
    if target is None:
        judgement.not_checked |= dict.fromkeys(("sources", "skew"), no_rival) | not_asked
    elif judgement.failures(()):
        judgement.not_checked |= dict.fromkeys(_OF_ROWS, "another gate failed before") | not_asked
    else:
        theirs = download_model(uri, f"models:/{rival.name}/{rival.version}", folder / "champion") if rival and settings.compare else None
        _judge_rows(config, found, target, judgement, ours, theirs, not_asked)
    return judgement


def _target(config: Config, found: Candidate, rival: ModelVersion | None) -> measure.Target | None:
    """What the gates that need test rows compare; None if the config has none of them. Raises ConfigError if the version has no test
    rows, or if the metric cannot be computed from them."""
    settings = config.registry
    if not ((settings.compare and rival) or settings.slices or settings.latency_ms):
        return None
    if not found.version.rows("test"):
        raise ConfigError(
            f"version {found.version.manifest.version} has no test rows to compare models on; set {measure.WITHOUT_ROWS}, or give "
            "dataset.split a test share and train again"
        )
    return measure.target_of(config, found.version.manifest)


def _judge_rows(
    config: Config,
    found: Candidate,
    target: measure.Target,
    judgement: Judgement,
    ours: Path,
    theirs: Path | None,
    not_asked: dict[str, str],
) -> None:
    """Add the gates that need the test rows."""
    settings, test_rows_of_version = config.registry, found.version.rows("test")
    spark = session(config.name)
    with freed(spark):
        rows, sources = test_rows(spark, config, found.version.manifest.version, settings.most_rows)
    judgement.add("sources", [sources], "")
    if not sources.holds:
        judgement.not_checked |= dict.fromkeys(_OF_ROWS[1:], "the sources have changed") | not_asked
        return
    measure.check_slices(settings, rows.column_names)
    is_whole = len(rows) < settings.most_rows
    logged = found.metrics.get(f"test/{target.checked}") if is_whole else None
    sampled = f"only {settings.most_rows:,} of the test rows were taken, registry.most_rows"
    otherwise = {**not_asked, "skew": f"the run has no metric test/{target.checked}" if is_whole else sampled}
    measured = measure.of_rows(settings, target, rows, logged, ours, theirs, otherwise)
    if is_whole:
        count = measured.numbers["rows"]
        same = Gate("the number of test rows", count == test_rows_of_version, float(count), str(test_rows_of_version))
        judgement.add("sources", [same], "")
    judgement.checked += measured.checked
    judgement.not_checked |= measured.not_checked
    judgement.numbers = measured.numbers


def _record(client: MlflowClient, uri: str, run_id: str, record: dict[str, Any], text: str, version: ModelVersion | None = None) -> None:
    """A decision is a tag and an artifact of the run, and a tag of the version."""
    with reaching(uri):
        if version is not None:
            client.set_model_version_tag(version.name, version.version, DECISION, text)
        client.set_tag(run_id, DECISION, text)
        client.log_text(run_id, json.dumps({"text": text, **record}, indent=1), f"registry/{time.strftime('%Y-%m-%dT%H-%M-%S')}.json")
