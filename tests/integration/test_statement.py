"""A statement goes the whole way: signed after a training, verified elsewhere from nothing but the raw files, and signed again there."""

import json
import os
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from model_signing.verifying import Config as VerifierConfig
from pyspark.sql import SparkSession
from statements import Values, seal_sections
from stores import new_store

from pipelines import api
from pipelines.config import Config, load
from pipelines.data.versions.manifest import Erasure
from pipelines.data.versions.versions import open_version
from pipelines.errors import CorruptError, DatasetError, TrainingError
from pipelines.etl.run import run as run_etl
from pipelines.launch.training_run import Result, train
from pipelines.lifecycle.statements.attest import sign_statement, write_envelope
from pipelines.lifecycle.statements.digest_log import digest_log_descriptor, read_log_descriptor
from pipelines.lifecycle.statements.envelope import sign_values
from pipelines.lifecycle.statements.finished_run import hash_model_files
from pipelines.lifecycle.statements.keys import create_keys, read_private_key
from pipelines.lifecycle.statements.verification import Verification, VerificationRequest, check_statement

ROOT = Path(__file__).parents[2]
PIPELINE = """
name: people
source:
  tables:
    people: {format: csv, path: raw/people.csv, schema: "id long, plan string, x double, y boolean", options: {header: true}}
  expect: {finite: x > -9}
  max_quarantined: 0.1
dataset:
  path: data
  key: [id]
  features: {x: standardize, plan: vocabulary}    # in no order of the alphabet
  target: {y: binary}
task: {kind: tabular, hidden: [8]}
train: {strategy: exact, epochs: 2, global_batch: 32, shards: 4, storage: runs, checkpoint: {every_steps: 5}}
"""


@dataclass(frozen=True)
class Signed:
    """A finished run with its statement, and the folder it was made in."""

    folder: Path
    config: Config
    result: Result
    statement: Path


def write_raw(folder: Path, first: float = 0.5) -> None:
    draw = np.random.default_rng(0)
    rows = [f"{number},{draw.choice(['a', 'b'])},{draw.normal() if number else first:.4f}" for number in range(400)]
    lines = [f"{row},{str(float(row.split(',')[2]) > 0).lower()}" for row in rows]
    (folder / "raw").mkdir(parents=True)
    (folder / "raw/people.csv").write_text("id,plan,x,y\n" + "\n".join([*lines, "400,a,-10,true"]) + "\n")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, ray_cluster: None) -> Signed:
    folder = tmp_path_factory.mktemp("signed")
    write_raw(folder)
    (folder / "people.yaml").write_text(PIPELINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(folder))
        config = api.read_config(folder / "people.yaml", {"tracking.uri": new_store(folder)})
        run_etl(config)
        result = train(config)
        create_keys(folder / "key.pem")
        sign_statement(config, folder / "key.pem", folder / "S.json", result.run_id, folder / "documents")
    return Signed(folder, config, result, folder / "S.json")


@pytest.fixture
def elsewhere(signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder with the raw files and the statement alone."""
    shutil.copytree(signed.folder / "raw", tmp_path / "raw")
    shutil.copy(signed.statement, tmp_path / "S.json")
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    return tmp_path


def verify(folder: Path, signed: Signed, **request: Any) -> Verification:
    return check_statement(VerificationRequest(folder / "S.json", signed.folder / "key.pem.pub", **request))


def forge(folder: Path, signed: Signed, change: Callable[[Values], None]) -> None:
    """Let the signer lie: what a change gives is signed by the right key, with fitting digests of its parts."""
    values = json.loads(b64decode(json.loads(signed.statement.read_bytes())["payload"]))
    change(values)
    write_envelope(sign_values(seal_sections(values), read_private_key(signed.folder / "key.pem")), folder / "S.json")


def test_dataset_and_model_are_made_again_from_the_raw_files_and_the_statement_is_signed_by_a_second_key(
    elsewhere: Path, signed: Signed
) -> None:
    second = create_keys(elsewhere / "second.pem", "ed25519")
    verification = verify(elsewhere, signed, sign=elsewhere / "second.pem")
    assert verification.is_right and verification.trained
    assert {check.name for check in verification.checks if check.outcome == "right"} >= {"sources", "rows", "steps", "weights", "order"}
    assert not [check for check in verification.checks if check.outcome == "not checked"]
    assert len(json.loads((elsewhere / "S.json").read_bytes())["signatures"]) == 2 and verification.signed_by
    assert sorted(path.name for path in elsewhere.iterdir() if path.name != "runs") == ["S.json", "raw", "second.pem", second.name]
    assert not list((elsewhere / "runs").iterdir()), "nothing is left of the dataset and the training"


def test_a_lying_signer_is_found_by_what_the_training_gives(elsewhere: Path, signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(signed.folder))  # where the dataset is

    def other_weights(values: Values) -> None:
        next(subject for subject in values["subject"] if subject["name"] == "weights")["digest"]["sha256"] = "0" * 64

    forge(elsewhere, signed, other_weights)
    verification = verify(elsewhere, signed)
    assert verification.differences == ["weights"] and verification.trained

    def other_step(values: Values) -> None:
        byproducts = values["predicate"]["runDetails"]["byproducts"]
        log = read_log_descriptor(byproducts[-1])
        log.losses[7] += 1e-12
        byproducts[-1] = digest_log_descriptor(log)

    forge(elsewhere, signed, other_step)
    verification = verify(elsewhere, signed)
    (check,) = [check for check in verification.checks if check.outcome == "differs"]
    assert check.name == "steps" and check.text.startswith("differs: step 7 is the first whose loss differs")


def test_other_raw_files_are_found_before_anything_is_trained(elsewhere: Path, signed: Signed) -> None:
    shutil.rmtree(elsewhere / "raw")
    write_raw(elsewhere, first=0.6)
    verification = verify(elsewhere, signed)
    assert verification.differences == ["rows", "encoder state", "sources"] and not verification.trained


@pytest.mark.full
def test_a_version_has_a_statement_too(elsewhere: Path, signed: Signed) -> None:
    sign_statement(signed.config, signed.folder / "key.pem", elsewhere / "S.json")
    values = json.loads(b64decode(json.loads((elsewhere / "S.json").read_bytes())["payload"]))
    assert values["predicate"]["buildDefinition"]["buildType"] == "lockstep:etl/v1"
    verification = verify(elsewhere, signed, sign=signed.folder / "key.pem")
    assert verification.is_right and not verification.trained
    assert {"rows", "encoder state", "sources"} <= {check.name for check in verification.checks if check.outcome == "right"}


def test_the_documents_of_a_real_run_are_read_by_the_tools_of_others(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(signed.folder))
    model = Path(download_artifacts(artifact_uri=signed.result.model, dst_path=str(tmp_path), tracking_uri=signed.config.tracking.uri))
    documents = signed.folder / "documents"
    public = signed.folder / "key.pem.pub"
    VerifierConfig().use_elliptic_key_verifier(public_key=public).verify(model, documents / "model.sig")
    assert verify(signed.folder, signed, model=model, digests_only=True).is_right
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str((documents / "bom.cdx.json").read_text()) is None
    assert f"`{signed.result.model_digest}`" in (documents / "MODEL_CARD.md").read_text()
    assert [path.name for path in (signed.folder / "data").glob("*.croissant.json")]
    (model / "MLmodel").write_text("altered")
    with pytest.raises(CorruptError, match=r"MLmodel of the model is not the file that was logged; log the model again with jobs/train.py"):
        hash_model_files(model)


def test_what_cannot_be_signed_is_refused_with_a_remedy(signed: Signed, tmp_path: Path) -> None:
    arguments = signed.folder / "key.pem", tmp_path / "S.json", signed.result.run_id
    elsewhere = signed.config.model_copy(update={"dataset": signed.config.dataset.model_copy(update={"path": str(tmp_path)})})
    with pytest.raises(DatasetError, match=r"does not hold; set dataset.path to the folder of the run's dataset"):
        sign_statement(elsewhere, *arguments)
    version = open_version(signed.config.dataset.path)
    erasure = Erasure(certificate="c", digest_before=version.digest, attempt_before="a", rows={"train": 1})
    erased = version.manifest.model_copy(update={"digest": "another", "erasures": (erasure,)})
    (tmp_path / erased.version).mkdir()
    (tmp_path / erased.version / "manifest.json").write_bytes(erased.to_json())
    with pytest.raises(DatasetError, match=rf"version {erased.version} before rows were erased from it; train again, and use that run"):
        sign_statement(elsewhere, *arguments)
    client = MlflowClient(signed.config.tracking.uri)
    client.update_run(signed.result.run_id, status="RUNNING")
    try:
        with pytest.raises(TrainingError, match="is RUNNING; a statement is about a FINISHED run: run its command again to resume it"):
            sign_statement(signed.config, *arguments)
    finally:
        client.set_terminated(signed.result.run_id, "FINISHED")
    assert not (tmp_path / "S.json").exists()


@pytest.mark.full
def test_another_checkout_verifies_it_by_one_command(elsewhere: Path, signed: Signed) -> None:
    for name in ("pipelines", "jobs"):
        shutil.copytree(ROOT / name, elsewhere / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", elsewhere)
    variables = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "LOCKSTEP_HOME", "PYTHONPATH")}
    command = [sys.executable, "jobs/verify.py", "--statement", "S.json", "--key", str(signed.folder / "key.pem.pub"), "--json"]
    environment = {**variables, "PYTHONPATH": str(elsewhere)}
    process = subprocess.run(command, cwd=elsewhere, env=environment, check=False, capture_output=True, text=True)
    result = json.loads(process.stdout.splitlines()[-1]) if process.stdout else {}
    assert process.returncode == 0 and result["trained"] and result["differs"] == [], process.stdout + process.stderr
    assert load(signed.folder / "people.yaml").name == "people"
