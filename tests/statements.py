"""Statements for tests, about a training that needs no Spark and no Ray; and what forgers make of them."""

import json
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.lifecycle.statements.attest import write_envelope
from pipelines.lifecycle.statements.dataset_record import dataset_descriptor, order_record
from pipelines.lifecycle.statements.digest_log import digest_log_descriptor
from pipelines.lifecycle.statements.envelope import read_envelope, sign_values
from pipelines.lifecycle.statements.finished_run import portable_config
from pipelines.lifecycle.statements.keys import create_keys, read_private_key
from pipelines.lifecycle.statements.materials import code_descriptor, hash_code, package_descriptors
from pipelines.lifecycle.statements.provenance import WEIGHTS, Parts, identities, section_digests, statement_values
from pipelines.train.checkpoint.checkpoint_record import DigestLog

Values = dict[str, Any]


@dataclass(frozen=True)
class SignedRun:
    """A statement in a folder, with the keys, the config, and the model's files."""

    config: Config
    values: Values
    statement: Path
    private: Path
    public: Path
    model: Path

    def write(self, values: Values, key: Path | None = None) -> None:
        """Write other values in place of the statement's, signed by another key, by default that of the signer."""
        write_envelope(sign_values(values, read_private_key(key or self.private)), self.statement)

    def alter(self, change: Callable[[Values], None]) -> Values:
        """The values with a change, whose sections still have the digests of before."""
        values = deepcopy(self.values)
        change(values)
        return values

    def alter_payload(self, change: Callable[[Values], None]) -> None:
        """Change the signed bytes, and leave the signature as it is."""
        envelope = json.loads(self.statement.read_bytes())
        envelope["payload"] = b64encode(json.dumps(self.alter(change)).encode()).decode()
        self.statement.write_text(json.dumps(envelope))


def seal_sections(values: Values) -> Values:
    """The values as their signer would make them: the digests of sections are those of the sections."""
    values["predicate"]["buildDefinition"]["internalParameters"]["sections"] = section_digests(values)
    return values


def sign_run(folder: Path, **settings: Any) -> SignedRun:
    """A statement about a training with a version, but without a run: its model's files and its losses are made up."""
    config = training(folder, rows=400, **{"strategy": "exact", **settings})
    version = open_dataset(config)
    model = folder / "model"
    (model / "artifacts").mkdir(parents=True)
    (model / "MLmodel").write_text("flavors: {}")
    (model / "artifacts/weights.safetensors").write_bytes(b"weights")
    files = {name: sha256((model / name).read_bytes()).hexdigest() for name in ("MLmodel", "artifacts/weights.safetensors")}
    metrics = {"test/auc": 0.9, "validation/loss": 0.25}
    log = DigestLog({1: 0.5, 2: 0.1 + 0.2}, {2: {"layer.weight": "ab"}}, "a machine")
    parts = Parts(
        kind="training",
        subjects={**files, WEIGHTS: sha256(b"tensors").hexdigest()},
        config=portable_config(config),
        identities=identities(config),
        order=order_record(config, version),
        dependencies=[dataset_descriptor(version), code_descriptor(hash_code(config), ""), *package_descriptors(config)],
        run_id="1f",
        started=version.manifest.created.isoformat(),
        finished=version.manifest.created.isoformat(),
        byproducts=[
            {"name": "metrics", "mediaType": "application/json", "content": b64encode(json.dumps(metrics).encode()).decode()},
            digest_log_descriptor(log),
        ],
    )
    public = create_keys(folder / "key.pem")
    run = SignedRun(config, statement_values(parts, "0.1.0"), folder / "S.json", folder / "key.pem", public, model)
    run.write(run.values)
    assert read_envelope(run.statement).signatures[0].public_key
    return run
