"""Signs a statement about a finished training, or about a dataset version, and writes it with the documents that say the same."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.attested_versions import mark_attested
from pipelines.lifecycle.statements.bill_of_materials import bill_of_materials
from pipelines.lifecycle.statements.croissant import write_croissant
from pipelines.lifecycle.statements.envelope import Envelope, sign_values
from pipelines.lifecycle.statements.finished_run import Attested, finished_training, read_version_parts
from pipelines.lifecycle.statements.keys import PrivateKey, key_id, read_private_key
from pipelines.lifecycle.statements.materials import PROJECT
from pipelines.lifecycle.statements.model_card import model_card
from pipelines.lifecycle.statements.model_signature import sign_model_files
from pipelines.lifecycle.statements.provenance import WEIGHTS, Statement, parse_statement, statement_values
from pipelines.runtime import atomic
from pipelines.runtime.environment import installed_versions

MODEL_SIGNATURE, BILL, CARD = "model.sig", "bom.cdx.json", "MODEL_CARD.md"
"""Names of the documents about a model."""


@dataclass(frozen=True)
class Attestation:
    statement: Statement
    path: str
    key: str
    """Of the signer, as `key_id` names it."""
    documents: tuple[str, ...]
    """Paths of what was written besides the statement."""


def sign_statement(config: Config, key: str | Path, output: str | Path, run_id: str = "", documents: str | Path = "") -> Attestation:
    """Sign a statement about a finished training, or without `run_id` about the dataset version that the config describes, with the private
    key in the file `key`, and write it to `output`.

    With a folder for `documents`, write there the signature of the model's files, the bill of materials and the model card, and into the
    dataset's folder its description as Croissant. Raises ConfigError for a key that cannot be used, or a file that cannot be written, and
    as `finished_training` does."""
    private = read_private_key(key)
    with finished_training(config, run_id) if run_id else _version(config) as attested:
        envelope = sign_values(statement_values(attested.parts, installed_versions([PROJECT])[PROJECT]), private)
        statement = parse_statement(envelope.payload, str(output))
        write_envelope(envelope, output)
        mark_attested(attested.version, output)
        written = _write_documents(attested, statement, private, Path(documents)) if documents else ()
    return Attestation(statement, str(output), key_id(private.public_key()), written)


def write_envelope(envelope: Envelope, path: str | Path) -> None:
    """Raises ConfigError if the file cannot be written."""
    _write(Path(path), envelope.to_json())


@contextmanager
def _version(config: Config) -> Iterator[Attested]:
    yield read_version_parts(config)


def _write_documents(attested: Attested, statement: Statement, key: PrivateKey, folder: Path) -> tuple[str, ...]:
    version = attested.version
    documents = [write_croissant(version)]
    if attested.model_folder is None:
        return tuple(documents)
    files = {name: digest for name, digest in statement.subjects.items() if name != WEIGHTS}
    contents = {
        MODEL_SIGNATURE: sign_model_files(statement.config["name"], files, key),
        BILL: json.dumps(bill_of_materials(statement), indent=1).encode() + b"\n",
        CARD: model_card(statement, version.manifest).encode(),
    }
    for name, content in contents.items():
        _write(folder / name, content)
    return (*(str(folder / name) for name in contents), *documents)


def _write(path: Path, content: bytes) -> None:
    try:
        atomic.write_file(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; name a file in a folder that can be written") from error
