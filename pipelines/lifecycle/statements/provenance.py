"""Statements by in-toto v1 with the predicate of SLSA provenance v1: what was made, from what, by which config, when.

    subject                         the files of a model with their SHA-256, and the digest of its weights; or a dataset version
    buildDefinition.externalParameters     the resolved config, with paths relative to LOCKSTEP_HOME where they are below it
    buildDefinition.internalParameters     what follows from it: identities, the order of rows; and a digest of each section
    buildDefinition.resolvedDependencies   the dataset version, its raw tables, models of other runs in this one, the code, the packages
    runDetails                      the run, its times, and as by-products its digest log and metrics

A section is what a forger would alter, and has a digest of its own beside the signature. So a reader of an altered statement is told which
part it is. Whoever can sign can make digests that fit: those parts are then found false by what is made again from the sources."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.dataset_record import DATASET, SOURCES
from pipelines.lifecycle.statements.digest_log import DIGEST_LOG
from pipelines.lifecycle.statements.envelope import compact_json
from pipelines.lifecycle.statements.materials import CODE, MODELS, PACKAGES, Descriptor

STATEMENT_TYPE, PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
FORMAT = 1
"""Number of the layout of our own parts of a statement. It ends the build type."""
WEIGHTS = "weights"
"""The subject that is the digest of all tensors of a model."""
METRICS = "metrics"
Kind = Literal["training", "etl"]
KINDS: tuple[Kind, ...] = ("training", "etl")


@dataclass(frozen=True)
class Parts:
    """The contents of a statement, in plain values."""

    kind: Kind
    subjects: Mapping[str, str]
    """Hex SHA-256 by name."""
    config: Mapping[str, Any]
    identities: Mapping[str, str]
    """As `identities` computes them."""
    order: Mapping[str, Any]
    """As `dataset_record.order_record` gives it; empty for an ETL."""
    dependencies: Sequence[Descriptor]
    run_id: str
    started: str
    """RFC 3339, as all times."""
    finished: str
    byproducts: Sequence[Descriptor] = ()
    withheld: Sequence[str] = ()
    """Settings that the config does not show."""


def statement_values(parts: Parts, lockstep_version: str) -> dict[str, Any]:
    """The statement as JSON values."""
    values: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(parts.subjects.items())],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": build_type(parts.kind),
                "externalParameters": {"config": parts.config},
                "internalParameters": {"identities": parts.identities, "order": parts.order, "withheld": list(parts.withheld)},
                "resolvedDependencies": list(parts.dependencies),
            },
            "runDetails": {
                "builder": {"id": f"lockstep:{parts.kind}", "version": {"lockstep": lockstep_version}},
                "metadata": {"invocationId": parts.run_id, "startedOn": parts.started, "finishedOn": parts.finished},
                "byproducts": list(parts.byproducts),
            },
        },
    }
    values["predicate"]["buildDefinition"]["internalParameters"]["sections"] = section_digests(values)
    return values


def build_type(kind: Kind) -> str:
    return f"lockstep:{kind}/v{FORMAT}"


def identities(config: Config) -> dict[str, str]:
    """Digests of the settings that decide the dataset and the model."""
    data = sha256(json.dumps(config.data_identity, sort_keys=True).encode()).hexdigest()
    return {"data": data, "model": config.model_identity}


def sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a statement by the names under which differences are reported."""
    build, details = values["predicate"]["buildDefinition"], values["predicate"]["runDetails"]
    dependencies = {descriptor["name"]: descriptor for descriptor in build["resolvedDependencies"]}
    dataset = dependencies.get(DATASET, {})
    pieces = dataset.get("annotations", {})
    rows = {"digest": dataset.get("digest"), "splits": pieces.get("splits"), "parent": pieces.get("parent")}
    return {
        "rows": [rows, *(descriptor for name, descriptor in dependencies.items() if name.startswith(SOURCES))],
        "encoder state": pieces.get("encoders"),
        "order": build["internalParameters"].get("order"),
        "weights": [*values["subject"], *(descriptor for name, descriptor in dependencies.items() if name.startswith(MODELS))],
        "config": [build["externalParameters"], build["internalParameters"].get("identities")],
        "code": dependencies.get(CODE),
        "environment": [descriptor for name, descriptor in dependencies.items() if name.startswith(PACKAGES)],
        "time": [details["metadata"], pieces.get("created")],
        "steps": details.get("byproducts"),
    }


def section_digests(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: sha256(compact_json({"": section})).hexdigest() for name, section in sections(values).items()}


@dataclass(frozen=True)
class Statement:
    """A statement that was read, in the present format."""

    values: Mapping[str, Any]
    kind: Kind
    place: str
    """Where it was read from, for messages."""

    @property
    def build(self) -> Mapping[str, Any]:
        return dict(self.values["predicate"]["buildDefinition"])

    @property
    def internal(self) -> Mapping[str, Any]:
        return dict(self.build["internalParameters"])

    @property
    def metadata(self) -> Mapping[str, str]:
        return dict(self.values["predicate"]["runDetails"]["metadata"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.build["externalParameters"]["config"])

    @property
    def subjects(self) -> dict[str, str]:
        return {subject["name"]: subject["digest"]["sha256"] for subject in self.values["subject"]}

    @property
    def dependencies(self) -> dict[str, Descriptor]:
        return {descriptor["name"]: descriptor for descriptor in self.build["resolvedDependencies"]}

    def byproduct(self, name: str) -> Descriptor | None:
        byproducts = self.values["predicate"]["runDetails"].get("byproducts", [])
        return next((descriptor for descriptor in byproducts if descriptor["name"] == name), None)

    @property
    def digest_log(self) -> Descriptor | None:
        return self.byproduct(DIGEST_LOG)


def parse_statement(payload: bytes, place: str) -> Statement:
    """Raises ConfigError for a payload that is no such statement, or is of an older or a newer format."""
    try:
        values = json.loads(payload)
        types = values["_type"], values["predicateType"]
        if types != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise ConfigError(
                f"--statement {place} is a {types[1]} in a {types[0]}; {PREDICATE_TYPE} in a {STATEMENT_TYPE} is read: "
                "give a file that lockstep attest has written"
            )
        kind = _read_kind(str(values["predicate"]["buildDefinition"]["buildType"]), place)
        statement = Statement(values, kind, place)
        sections(values)
        _ = statement.subjects, statement.config, statement.metadata["invocationId"], dict(statement.internal["sections"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--statement {place} lacks what a statement has: {error!r}; give a file that lockstep attest has written"
        ) from error
    return statement


def _read_kind(text: str, place: str) -> Kind:
    head, _, number = text.rpartition("/v")
    kind = next((kind for kind in KINDS if head == f"lockstep:{kind}"), None)
    if kind is None or not number.isdecimal():
        raise ConfigError(
            f"--statement {place} is about a build of type {text!r}; statements of lockstep attest are of {build_type(KINDS[0])}"
        )
    if int(number) != FORMAT:
        remedy = "have it made anew" if int(number) < FORMAT else "upgrade Lockstep"
        raise ConfigError(f"--statement {place} has format {number}; this version of Lockstep reads format {FORMAT}: {remedy}")
    return kind
