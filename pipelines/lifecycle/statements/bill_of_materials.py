"""A model's statement as a bill of materials by CycloneDX 1.6: the model with its metrics, the dataset, the raw tables, the code and the
packages, each with its digest. https://cyclonedx.org/docs/1.6/json"""

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pipelines.lifecycle.statements.dataset_record import DATASET, SOURCES
from pipelines.lifecycle.statements.materials import CODE, PACKAGES, Descriptor
from pipelines.lifecycle.statements.provenance import METRICS, WEIGHTS, Statement

SPECIFICATION = "1.6"
_MODEL = "model"


def read_metrics(statement: Statement) -> dict[str, float]:
    """The metrics of the best epoch, by `<split>/<metric>`."""
    descriptor = statement.byproduct(METRICS)
    return dict(json.loads(b64decode(descriptor["content"]))) if descriptor else {}


def bill_of_materials(statement: Statement) -> dict[str, Any]:
    """The bill as JSON values, the same for equal statements."""
    subjects, dependencies = statement.subjects, statement.dependencies
    config = statement.config
    serial = uuid5(NAMESPACE_URL, f"lockstep:{statement.metadata['invocationId']}:{subjects.get(WEIGHTS, '')}")
    data = [name for name in dependencies if name == DATASET or name.startswith(SOURCES)]
    model = {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": config["name"],
        "version": statement.metadata["invocationId"],
        "hashes": _hashes({"sha256": subjects[WEIGHTS]}),
        "modelCard": {
            "modelParameters": {
                "task": config["task"]["kind"],
                "architectureFamily": config["task"]["kind"],
                "datasets": [{"ref": DATASET}],
            },
            "quantitativeAnalysis": {"performanceMetrics": _performance(read_metrics(statement))},
        },
        "properties": [{"name": f"lockstep:file:{name}", "value": digest} for name, digest in sorted(subjects.items()) if name != WEIGHTS],
    }
    components = [_data_component(dependencies[name], config["name"]) for name in data]
    components += [_code_component(dependencies[CODE])] if CODE in dependencies else []
    components += [_package_component(dependencies[name]) for name in dependencies if name.startswith(PACKAGES)]
    references = [component["bom-ref"] for component in components]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": statement.metadata["finishedOn"], "component": model},
        "components": components,
        "dependencies": [
            {"ref": _MODEL, "dependsOn": [name for name in references if not name.startswith(SOURCES)]},
            {"ref": DATASET, "dependsOn": [name for name in references if name.startswith(SOURCES)]},
        ],
    }


def _performance(metrics: Mapping[str, float]) -> list[dict[str, str]]:
    values = []
    for name, value in sorted(metrics.items()):
        split, _, metric = name.partition("/")
        values.append({"type": metric or name, "value": repr(value), **({"slice": split} if metric else {})})
    return values


def _data_component(descriptor: Descriptor, pipeline: str) -> dict[str, Any]:
    name, annotations = descriptor["name"], descriptor.get("annotations", {})
    properties = [
        {"name": f"lockstep:{split}:rows", "value": str(summary["rows"])} for split, summary in annotations.get("splits", {}).items()
    ]
    properties += [{"name": f"lockstep:{key}", "value": str(annotations[key])} for key in ("files", "bytes") if key in annotations]
    component = {
        "type": "data",
        "bom-ref": name,
        "name": pipeline if name == DATASET else name.removeprefix(SOURCES),
        "data": [{"type": "dataset", "name": name}],
        "properties": properties,
    }
    version = {"version": annotations["version"]} if "version" in annotations else {}
    return {**component, **version, **_optional_hashes(descriptor)}


def _code_component(descriptor: Descriptor) -> dict[str, Any]:
    commit = descriptor["digest"].get("gitCommit", "")
    version = {"version": f"{commit}-dirty" if descriptor.get("annotations", {}).get("dirty") else commit} if commit else {}
    return {"type": "application", "bom-ref": CODE, "name": "lockstep", **version, **_optional_hashes(descriptor)}


def _package_component(descriptor: Descriptor) -> dict[str, Any]:
    """A package. Its digest is of the hashes of its files, so it stands as a property: a hash of CycloneDX is of one file."""
    name, url = descriptor["name"], descriptor["uri"]
    component = {"type": "library", "bom-ref": name, "name": name.removeprefix(PACKAGES), "version": url.rpartition("@")[2], "purl": url}
    digest = descriptor.get("digest", {}).get("sha256")
    return {**component, **({"properties": [{"name": "lockstep:record:sha256", "value": digest}]} if digest else {})}


def _optional_hashes(descriptor: Descriptor) -> dict[str, Any]:
    digests = {name: value for name, value in descriptor.get("digest", {}).items() if name == "sha256"}
    return {"hashes": _hashes(digests)} if digests else {}


def _hashes(digests: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest} for digest in digests.values()]
