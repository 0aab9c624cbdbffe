"""From a run to a decision: it is promoted, or refused with the gates that do not hold. Every decision is recorded."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.data.versions.versions import Version, check_is_not_erased, find_by_digest, open_version
from pipelines.errors import ConfigError, RefusedError, TrackingError
from pipelines.serving.model.logged_model import download_model
from pipelines.serving.model.process import ModelProcess
from pipelines.serving.registry import alias
from pipelines.serving.registry.champion_comparison import WITHOUT_ROWS, ComparisonTarget, find_target
from pipelines.serving.registry.gates import (
    Gate,
    Judgement,
    bounds,
    check_slices,
    equal,
    judge_predictions,
    size_gates,
    skip_reasons,
    test_rows,
)
from pipelines.spark.job_endings import driver_errors
from pipelines.spark.session import restored_settings, session, temporary_cache
from pipelines.tracking.client import connect, mlflow_errors
from pipelines.tracking.descriptions import GIT_COMMIT, git_commit
from pipelines.tracking.history import check_is_not_deleted, read_training
from pipelines.tracking.models import find_model
from pipelines.tracking.run_heartbeat import MODEL_DIGEST
from pipelines.tracking.training import reasons

log = logging.getLogger(__name__)

DECISION = "lockstep.decision"
"""Tag of a run and of a version."""
_ROW_GATES = ("sources", "skew", "champion", "slices", "latency")
"""The gates that need the test rows, in their order."""


@dataclass(frozen=True)
class Candidate:
    """A run with its model, its records in MLflow, and the dataset version that it was trained on."""

    run_id: str
    model: LoggedModel
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    version: Version

    @property
    def uri(self) -> str:
        return str(self.model.model_uri)


def read_candidate(config: Config, run_id: str) -> Candidate:
    """Read a run. Raises TrackingError if there is no such training, if it is deleted, not finished or has no model; ConfigError if it
    was trained on what another config makes; DatasetError if its dataset version is gone."""
    uri = config.tracking.uri
    record = read_training(uri, run_id)
    if record.status != "FINISHED":
        raise TrackingError(f"run {run_id} is {record.status}; only a finished training can be promoted")
    if (pipeline := record.config.get("name")) != config.name:
        raise ConfigError(f"--run {run_id} is of the pipeline {pipeline}, and the config is that of {config.name}; give its own config")
    if fold := record.config.get("train", {}).get("fold"):
        raise ConfigError(
            f"--run {run_id} is the model of fold {fold} of a cross-validation, which has not seen all rows; for the champion, train with "
            "a dataset.split of shares, and promote that run"
        )
    client = connect(uri)
    with mlflow_errors(uri):
        run = client.get_run(run_id)
        check_is_not_deleted(uri, run)
        model = find_model(client, run)
    # Another config's rows would be others than those that the run was tested on.
    digest = run.data.tags.get("dataset.digest", "")
    version = find_by_digest(config.dataset.path, digest)
    if version is None:
        check_is_not_erased(config.dataset.path, digest, run_id)
        newest = open_version(config.dataset.path, config.data_identity)
        raise ConfigError(
            f"--run {run_id} was trained on dataset {digest[:12] or 'of no digest'}, which {config.dataset.path} does not hold; "
            f"the config's is {newest.digest[:12]}: give the config of the run, or train on this dataset"
        )
    if version.manifest.identity != config.data_identity:
        raise ConfigError(f"--run {run_id} was trained with other settings of source or dataset than the config's; give its own config")
    return Candidate(run_id, model, run.data.tags, run.data.metrics, version)


def lineage_gates(candidate: Candidate, digest: str, dataset: str) -> list[Gate]:
    """The gates of the records that lead from the model back to the raw data. `digest` is of the weights in the model's files, and
    `dataset` is the digest that the model names."""
    sources = candidate.version.manifest.sources
    return [
        equal("the digest of the weights", digest, candidate.tags.get(MODEL_DIGEST, "nothing")),
        equal("the digest of the model's dataset", dataset, candidate.version.digest),
        Gate("the number of checksums of raw files", bool(sources), float(sum(table.files for table in sources.values())), "at least 1"),
    ]


@dataclass(frozen=True)
class Promotion:
    """The result of `promote` or `rollback`."""

    name: str
    """The registered model."""
    version: str
    run_id: str
    text: str


@driver_errors()
def promote(config: Config, run_id: str) -> Promotion:
    """Make the model of a run the champion if it passes every gate of `config.registry`. Raises RefusedError with the gates that do not
    hold, TrackingError if another promotion is under way or was faster."""
    uri, name = config.tracking.uri, config.registry.model or config.name
    client = connect(uri)
    candidate = read_candidate(config, run_id)
    present, history = alias.champion(client, uri, name), alias.promotion_history(client, uri, name)
    if present is not None and present.run_id == run_id and alias.is_promoted(present, history):
        return Promotion(
            name, str(present.version), run_id, f"run {run_id} is the champion of {name} already, as version {present.version}"
        )
    # Whoever set or removed the alias by hand has skipped the gates: then the run is compared with the last champion that passed them.
    rival = alias.rival(present, history, run_id)
    with TemporaryDirectory(prefix="lockstep-registry-") as folder:
        judgement = _judge(config, candidate, rival, Path(folder))
    record: dict[str, Any] = {
        "run": run_id,
        "model": candidate.uri,
        "champion": str(present.version) if present else None,
        **judgement.record(),
        "settings": config.registry.model_dump(mode="json"),
        GIT_COMMIT: git_commit(),
    }
    if failed := judgement.failures(config.registry.required):
        reason = f"{'; '.join(failed)}; {judgement}"
        _record(client, uri, run_id, {**record, "decision": "refused"}, f"refused: {reason}")
        raise RefusedError(f"run {run_id} does not become the champion of {name}: {reason}")
    tags = {"dataset.digest": candidate.version.digest, **alias.tags_after(present, history)}
    version = alias.promote_model(client, uri, name, candidate.uri, run_id, present, tags)
    before = f"version {present.version}" if present else "no champion"
    if config.registry.compare and rival is not None and rival is not present:
        before += f", compared with version {rival.version}, which was promoted last"
    text = f"run {run_id} is the champion of {name} as version {version.version}, after {before}; {judgement}"
    _record(client, uri, run_id, {**record, "decision": "promoted", "version": str(version.version)}, text, version)
    return Promotion(name, str(version.version), run_id, text)


def rollback(config: Config) -> Promotion:
    """Make the champion before the present one the champion again, as a new version: where the alias was moved by hand, the one that was
    promoted last. Raises TrackingError if there is none, or if it or its run is deleted."""
    uri, name = config.tracking.uri, config.registry.model or config.name
    client = connect(uri)
    present = alias.champion(client, uri, name)
    previous = alias.champion_before(client, uri, name, present)
    if previous is None:
        number = present.version if present else "none"
        raise TrackingError(f"{name} has no champion before version {number}, so nothing to roll back to; promote a run with --run instead")
    _check_run(client, uri, previous)
    replaced = str(present.version) if present else ""
    tags = {alias.PREVIOUS: previous.tags.get(alias.PREVIOUS, ""), "lockstep.rollback_of": replaced}
    source = f"models:/{previous.model_id}" if previous.model_id else previous.source
    run_id = str(previous.run_id)
    version = alias.promote_model(client, uri, name, str(source), run_id, present, tags)
    text = (
        f"run {run_id}, version {previous.version} of {name}, is the champion again as version {version.version}, after "
        f"{f'version {replaced}' if replaced else 'no champion'}"
    )
    record = {"run": run_id, "champion": replaced or None, "decision": "rolled back", "version": str(version.version)}
    _record(client, uri, run_id, record, text, version)
    return Promotion(name, str(version.version), run_id, text)


def _check_run(client: MlflowClient, uri: str, version: ModelVersion) -> None:
    """Raises TrackingError if the version's run is deleted: the decision could not be recorded after the alias has moved."""
    with mlflow_errors(uri):
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


def _judge(config: Config, candidate: Candidate, rival: ModelVersion | None, folder: Path) -> Judgement:
    """Check the gates. Spark starts only if those that need no rows hold."""
    settings, uri = config.registry, config.tracking.uri
    no_rival = "there is no other champion to compare with" if settings.compare else "registry.compare is false"
    skipped = skip_reasons(settings, None if rival and settings.compare else no_rival)
    target = _target(config, candidate, rival)
    files = download_model(uri, candidate.uri, folder / "candidate")
    with ModelProcess(files, "query") as model:
        about = model.about
    name = candidate.tags.get(GIT_COMMIT, "")
    is_clean = bool(name) and not name.endswith("-dirty")
    commit = [Gate("the commit of the code", is_clean, name or None, "a commit without -dirty")] if settings.clean_git else []
    judgement = Judgement()
    judgement.add(
        "bounds", bounds(settings, candidate.metrics, reasons(candidate.tags)), "registry.at_least and registry.at_most are empty"
    )
    judgement.add("size", size_gates(settings, files), "registry.size_mb is not set")
    judgement.add("lineage", lineage_gates(candidate, about["digest"], about["dataset"]), "")
    judgement.add("commit", commit, "registry.clean_git is false")
    if target is None:
        judgement.not_checked |= dict.fromkeys(("sources", "skew"), no_rival) | skipped
    elif judgement.failures(()):
        judgement.not_checked |= dict.fromkeys(_ROW_GATES, "another gate failed before") | skipped
    else:
        champion = None
        if rival and settings.compare:
            champion = download_model(uri, f"models:/{rival.name}/{rival.version}", folder / "champion")
        _judge_rows(config, candidate, target, judgement, files, champion, skipped)
    return judgement


def _target(config: Config, candidate: Candidate, rival: ModelVersion | None) -> ComparisonTarget | None:
    """The target of the gates that need test rows; None if the config has no such gate. Raises ConfigError if the version has no test
    rows, or if the metric cannot be computed from them."""
    settings = config.registry
    if not ((settings.compare and rival) or settings.slices or settings.latency_ms):
        return None
    if not candidate.version.rows("test"):
        raise ConfigError(
            f"version {candidate.version.manifest.version} has no test rows to compare models on; set {WITHOUT_ROWS}, or give "
            "dataset.split a test share and train again"
        )
    return find_target(config, candidate.version.manifest)


@restored_settings()
def _judge_rows(
    config: Config,
    candidate: Candidate,
    target: ComparisonTarget,
    judgement: Judgement,
    files: Path,
    champion: Path | None,
    skipped: dict[str, str],
) -> None:
    """Add the gates that need the test rows."""
    settings, version = config.registry, candidate.version
    spark = session(config.name)
    with temporary_cache(spark):
        rows, sources = test_rows(spark, config, version.manifest, settings.most_rows)
    judgement.add("sources", [sources], "")
    if not sources.holds:
        judgement.not_checked |= dict.fromkeys(_ROW_GATES[1:], "the sources have changed") | skipped
        return
    check_slices(settings, rows.column_names)
    has_all_rows = len(rows) < settings.most_rows
    logged = candidate.metrics.get(f"test/{target.skew.metric}") if has_all_rows else None
    sampled = f"only {settings.most_rows:,} of the test rows were taken, registry.most_rows"
    no_check = {**skipped, "skew": f"the run has no metric test/{target.skew.metric}" if has_all_rows else sampled}
    measured = judge_predictions(settings, target, rows, logged, files, champion, no_check)
    if has_all_rows:
        count = measured.numbers["rows"]
        expected = version.rows("test")
        judgement.add("sources", [Gate("the number of test rows", count == expected, float(count), str(expected))], "")
    judgement.conditions += measured.conditions
    judgement.not_checked |= measured.not_checked
    judgement.numbers = measured.numbers


def _record(client: MlflowClient, uri: str, run_id: str, record: dict[str, Any], text: str, version: ModelVersion | None = None) -> None:
    """A decision is a tag and an artifact of the run, and a tag of the version."""
    with mlflow_errors(uri):
        if version is not None:
            client.set_model_version_tag(version.name, version.version, DECISION, text)
        client.set_tag(run_id, DECISION, text)
        client.log_text(run_id, json.dumps({"text": text, **record}, indent=1), f"registry/{time.strftime('%Y-%m-%dT%H-%M-%S')}.json")
