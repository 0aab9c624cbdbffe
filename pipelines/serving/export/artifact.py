"""The folder of an export, with its README and its manifest; it appears whole or not at all."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipelines.config.features import encoder_settings
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import ExportError
from pipelines.serving.export.modules import Modules
from pipelines.serving.export.parity import Row
from pipelines.serving.export.subject import Subject
from pipelines.serving.export.targets import Candidate, TargetFiles
from pipelines.tasks.answers import find_answer

MANIFEST, PARITY = "manifest.json", "parity.json"
FORMAT = 2


@contextmanager
def commit_folder(folder: Path) -> Iterator[Path]:
    """An empty draft beside `folder`, which replaces it when the block ends without an exception, and is removed otherwise."""
    draft = folder.with_name(f"{folder.name}.{uuid4().hex}")
    draft.mkdir(parents=True)
    backup = folder.with_name(f"{draft.name}.before")
    try:
        yield draft
        if folder.exists():
            os.replace(folder, backup)
        os.replace(draft, folder)
    finally:
        if backup.exists() and not folder.exists():  # it was broken off between the two
            os.replace(backup, folder)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(backup, ignore_errors=True)


def write_parity(folder: Path, rows: list[Row]) -> None:
    """Write the comparison with the model in MLflow."""
    (folder / PARITY).write_text(json.dumps({"split": "test", "rows": rows}, indent=1) + "\n", encoding="utf-8")


def describe_export(subject: Subject, target: str, written: TargetFiles) -> dict[str, Any]:
    """The description of the model for the manifest: its origin, its inputs and its answers."""
    first = next(iter(written.candidates.values()))
    return {
        "format": FORMAT,
        "target": target,
        "run": subject.run_id,
        "model": {"uri": subject.uri, "digest": subject.digest},
        "dataset": {"name": subject.manifest.name, "version": subject.manifest.version, "digest": subject.manifest.digest},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("lockstep-pipelines", "torch")} | dict(written.versions),
        "rows": {field.name: str(field.type) for field in subject.raw_schema},
        "schema": schema_to_text(subject.raw_schema),
        "inputs": [_input(subject, column.name, first) for column in subject.columns],
        "packs": subject.packs,
        "rows_at_once": subject.task.rows_at_once,
        "answer": describe_answer(subject),
        "classes": list(subject.task.data.classes),
        "notes": list(written.notes),
    }


def describe_answer(subject: Subject) -> dict[str, Any]:
    """The form of the task's predictions, with the encoder that decodes them if there is one. Raises ExportError if the form names no
    function."""
    form = {"form": "output", **subject.task.prediction_form()}
    try:
        find_answer(form)
    except (ImportError, AttributeError, KeyError) as error:
        raise ExportError(
            f"prediction_form of the task names {form['form']!r}, which is no function: {error!r}; name one of pipelines.tasks.answers, "
            "or module:function of your own"
        ) from error
    target = subject.manifest.encoders.get(form.get("decodes", ""))
    return {**form, "target": encoder_in_json(target)} if target else form


def encoder_in_json(fitted: FittedEncoder) -> dict[str, Any]:
    """A fitted encoder in plain JSON, from which `program` makes it without the classes of settings: with all settings, also those that a
    manifest leaves out, and what they compute."""
    settings = encoder_settings(fitted.feature)
    values = {name: getattr(settings, name) for name in type(settings).model_fields} | settings.model_dump(mode="json")
    return {
        "columns": list(fitted.inputs),
        "implementation": settings.implemented_by,
        "encoder": {**values, "keeps_missing": settings.keeps_missing},
        "state": fitted.state,
        "column": fitted.column.to_values(),
        "needs": list(settings.distributions),
    }


def write_manifest(folder: Path, description: Mapping[str, Any]) -> None:
    """Write the manifest: the description, and the SHA-256 of every other file."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    digests = {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}
    (folder / MANIFEST).write_text(json.dumps({**description, "files": digests}, indent=1) + "\n", encoding="utf-8")


def readme_text(name: str, manifest: Mapping[str, Any], query: str, examples: Mapping[str, Any], parity: str, modules: Modules) -> str:
    """Markdown that says how to predict with the folder; `manifest` and `examples` are the content of its files, `parity` is the comparison
    with the model in MLflow in a few words, and `modules` are the script's."""
    described = [entry.get("encoded by") or entry["refuses"] for entry in manifest["inputs"]]
    encoders = [encoder["encoder"]["encoder"] for encoder in described]
    template = Path(__file__).parent / "templates/readme.txt"
    return template.read_text(encoding="utf-8").format(
        name=name,
        run=manifest["run"],
        digest=manifest["dataset"]["digest"][:12],
        parity=parity,
        packages=" ".join(_distributions(modules, (name for encoder in described for name in encoder["needs"]))),
        row=_line(examples["rows"][0]),
        prediction=_line(examples["predictions"][0]),
        pictures="; pictures in files need Pillow" if "image" in encoders else "",
        columns="\n".join(f"| {column} | {kind} |" for column, kind in manifest["rows"].items()),
        query=query.strip().replace("\n", "\n    "),
    )


def _input(subject: Subject, name: str, candidate: Candidate) -> Mapping[str, Any]:
    """One input of the written model: a raw column of the query, or a tensor column with the encoder that makes it."""
    fitted = subject.manifest.encoders[name]
    encoder = encoder_in_json(fitted)
    if candidate.takes_raw_numbers and name in subject.numeric.encoders:
        source = f"column {fitted.inputs[0]} of the query, NULL as NaN"
        return {"name": name, "takes": source, "dtype": "float64", "shape": [], "refuses": encoder}
    column = fitted.column
    dtype = candidate.dtypes.get(column.dtype, column.dtype)
    return {"name": name, "takes": "the encoded column", "dtype": dtype, "shape": list(column.shape), "encoded by": encoder}


def _distributions(modules: Modules, further: Iterable[str]) -> list[str]:
    """The distributions that the script needs, with `further` ones that encoders name."""
    installed = packages_distributions()
    return ["onnxruntime", *sorted({*(installed.get(package, [package])[0] for package in modules.needs), *further})]


def _line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1_000 else f"{text[:1_000]}…"
