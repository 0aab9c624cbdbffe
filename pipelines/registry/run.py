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

from pipelines.config import Config
from pipelines.errors import RefusedError, TrackingError
from pipelines.etl.driver import driver_errors
from pipelines.etl.run import freed
from pipelines.etl.session import session
from pipelines.registry import alias, measure
from pipelines.registry.candidate import Candidate, candidate, lineage
from pipelines.registry.gates import Gate, bounds
from pipelines.registry.rows import test_rows
from pipelines.serve.model import download_model
from pipelines.serve.process import ModelProcess
from pipelines.tracking.client import connect, reaching
from pipelines.tracking.git import GIT_COMMIT, git_commit
from pipelines.tracking.training import reasons

log = logging.getLogger(__name__)

DECISION = "lockstep.decision"
"""Tag of a run and of a version."""


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
    present = alias.champion(client, uri, name)
    if present is not None and present.run_id == run_id:
        return Decision(name, str(present.version), run_id, f"run {run_id} is the champion of {name} already, as version {present.version}")
    with TemporaryDirectory(prefix="lockstep-registry-") as folder:
        gates, numbers = _judged(config, found, present, Path(folder))
    record: dict[str, Any] = {
        "run": run_id,
        "model": found.uri,
        "champion": str(present.version) if present else None,
        "gates": [gate.plain() for gate in gates],
        "measured": numbers,
        "settings": config.registry.model_dump(mode="json"),
        GIT_COMMIT: git_commit(),
    }
    if failed := [gate for gate in gates if not gate.holds]:
        told = "; ".join(map(str, failed))
        _record(client, uri, run_id, {**record, "decision": "refused"}, f"refused: {told}")
        raise RefusedError(f"run {run_id} does not become the champion of {name}: {told}")
    version = alias.promoted(client, uri, name, found.uri, run_id, present, {"dataset.digest": found.version.digest})
    before = f"version {present.version}" if present else "no champion"
    text = f"run {run_id} is the champion of {name} as version {version.version}, after {before}; {len(gates)} gates hold"
    _record(client, uri, run_id, {**record, "decision": "promoted", "version": str(version.version)}, text, version)
    return Decision(name, str(version.version), run_id, text)


def rollback(config: Config) -> Decision:
    """Make the champion before the present one the champion again, as a new version. Raises TrackingError if there is none."""
    uri, name = config.tracking.uri, config.registry.model or config.name
    client = connect(uri)
    present = alias.champion(client, uri, name)
    number = present.tags.get(alias.PREVIOUS, "") if present else ""
    if present is None or not number:
        raise TrackingError(f"{name} has no champion before version {present.version if present else 'none'}, so nothing to roll back to")
    with reaching(uri):
        previous = client.get_model_version(name, number)
    tags = {alias.PREVIOUS: previous.tags.get(alias.PREVIOUS, ""), "lockstep.rollback_of": str(present.version)}
    source = f"models:/{previous.model_id}" if previous.model_id else previous.source
    run_id = str(previous.run_id)
    version = alias.promoted(client, uri, name, str(source), run_id, present, tags)
    again = f"run {run_id}, version {number} of {name}, is the champion again"
    text = f"{again} as version {version.version}, after version {present.version}"
    record = {"run": run_id, "champion": str(present.version), "decision": "rolled back", "version": str(version.version)}
    _record(client, uri, run_id, record, text, version)
    return Decision(name, str(version.version), run_id, text)


def _judged(config: Config, found: Candidate, present: ModelVersion | None, folder: Path) -> tuple[list[Gate], dict[str, Any]]:
    """The gates, and what was measured. Spark starts only if those that need no rows hold."""
    settings, uri = config.registry, config.tracking.uri
    wants_rows = bool((settings.compare and present) or settings.slices or settings.latency_ms)
    target = measure.target_of(config, found.version.manifest) if wants_rows else None
    ours = download_model(uri, found.uri, folder / "candidate")
    with ModelProcess(ours, "query") as model:
        about = model.about
    gates = [*bounds(settings, found.metrics, reasons(found.tags)), *measure.of_files(settings, ours)]
    gates += lineage(config, found, about["digest"], about["dataset"])
    if target is None or not all(gate.holds for gate in gates):
        return gates, {}
    theirs = download_model(uri, f"models:/{present.name}/{present.version}", folder / "champion") if present and settings.compare else None
    spark = session(config.name)
    with freed(spark):
        rows, sources = test_rows(spark, config, found.version.manifest.version, settings.most_rows)
    if not sources.holds:
        return [*gates, sources], {}
    measure.check_slices(settings, rows.column_names)
    whole = len(rows) < settings.most_rows
    logged = found.metrics.get(f"test/{target.checked}") if whole else None
    measured = measure.of_rows(settings, target, rows, logged, ours, theirs)
    if whole:
        count = measured.numbers["rows"]
        gates.append(Gate("the number of test rows", count == found.version.rows("test"), float(count), str(found.version.rows("test"))))
    return [*gates, sources, *measured.gates], measured.numbers


def _record(client: MlflowClient, uri: str, run_id: str, record: dict[str, Any], text: str, version: ModelVersion | None = None) -> None:
    """A decision is a tag and an artifact of the run, and a tag of the version."""
    with reaching(uri):
        if version is not None:
            client.set_model_version_tag(version.name, version.version, DECISION, text)
        client.set_tag(run_id, DECISION, text)
        client.log_text(run_id, json.dumps({"text": text, **record}, indent=1), f"registry/{time.strftime('%Y-%m-%dT%H-%M-%S')}.json")
