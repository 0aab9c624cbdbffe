"""Writes one target of a run's model to a folder with README and manifest, which appears whole or not at all, and logs it with the run."""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipelines.config import Config
from pipelines.config.features import encoder_settings
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import DatasetError, ExportError
from pipelines.serving.export.examples import example_predictions, example_rows
from pipelines.serving.export.parity import LEAST_ROWS, Row, compare_outputs
from pipelines.serving.export.predict_program import rows_to_json
from pipelines.serving.export.predict_script import SCRIPT, TOLERANCE, Modules, check_script, script_modules, write_script
from pipelines.serving.export.subject import Subject, read_subject
from pipelines.serving.export.targets import Candidate, TargetFiles, Write, target_writer
from pipelines.serving.model.logged_model import file_digests
from pipelines.tasks.answers import find_answer
from pipelines.tracking.models import log_export

log = logging.getLogger(__name__)

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
    """The form of the task's predictions, with the encoder that decodes them, if any. Raises ExportError if the form names no function."""
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
    """A fitted encoder in plain JSON, from which `predict_program` makes it without the classes of settings: with all settings, also those
    that a manifest leaves out, and what they compute."""
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
    (folder / MANIFEST).write_text(json.dumps({**description, "files": file_digests(folder)}, indent=1) + "\n", encoding="utf-8")


def readme_text(name: str, manifest: Mapping[str, Any], query: str, examples: Mapping[str, Any], parity: str, modules: Modules) -> str:
    """Markdown that says how to predict with the folder; `manifest` and `examples` are the content of its files, `parity` is the comparison
    with the model in MLflow in a few words, and `modules` are the script's."""
    described = [entry.get("encoded by") or entry["refuses"] for entry in manifest["inputs"]]
    encoders = [encoder["encoder"]["encoder"] for encoder in described]
    installed = packages_distributions()
    packages = {installed.get(package, [package])[0] for package in modules.needs}.union(*(encoder["needs"] for encoder in described))
    template = Path(__file__).parent / "templates/readme.txt"
    return template.read_text(encoding="utf-8").format(
        name=name,
        run=manifest["run"],
        digest=manifest["dataset"]["digest"][:12],
        parity=parity,
        packages=" ".join(["onnxruntime", *sorted(packages)]),
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


def _line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1_000 else f"{text[:1_000]}…"


def export(config: Config, run_id: str, target: str) -> Path:
    """Write the model of a run for a target, compare it with the model in MLflow on the test split, and log both with the run.

    Returns the folder, `export.path/RUN-TARGET`, which replaces an earlier one. Raises ExportError if the target is not installed or
    cannot express the network, TrackingError, and DatasetError if the version is another one or has no test rows.
    """
    write = target_writer(target)
    subject = read_subject(config, run_id)
    if not subject.version.rows("test"):
        raise DatasetError(f"{subject.version.root} has no test rows to compare models on; give dataset.split a test share")
    folder = Path(config.export.path) / f"{config.name}-{run_id[:12]}-{target}"
    with commit_folder(folder) as draft:
        report, notes = write_export(config, subject, target, write, draft)
    for note in notes:
        log.info("note      %s", note)
    for row in report:
        log.info("%s", report_line(row))
    log_export(config.tracking.uri, run_id, folder, target, {f"export.{target}": report_summary(report)})
    log.info("written   %s, and logged with run %s under export/%s", folder, run_id, target)
    return folder


def write_export(config: Config, subject: Subject, target: str, write: Write, folder: Path) -> tuple[list[Row], list[str]]:
    """Write everything that the folder of an export has. Returns the comparison with the model in MLflow, and what a user should know.
    Raises ExportError if the written model decides otherwise than the model in MLflow on more rows than the config permits."""
    written = write(subject, config.export, folder)
    report = compare_outputs(subject, written.candidates, config.export.max_batch_rows, least_rows=LEAST_ROWS)
    share, least = float(report[1]["equal_decisions"] or 0.0), config.export.least_equal_decisions
    if share < least:
        remedy = "export to onnx, which computes in floats" if target == "onnx-int8" else "choose another target"
        raise ExportError(
            f"--to {target} decides as the model in MLflow in {share:.2%} of {_rows_text(report[1])}, and export.least_equal_decisions is "
            f"{least:g}; {remedy}, or lower the setting if that is enough for you"
        )
    (folder / PARITY).write_text(json.dumps({"split": "test", "rows": report}, indent=1) + "\n", encoding="utf-8")
    description = describe_export(subject, target, written)
    notes = [*written.notes, f"the model in MLflow was compared with it: {report_summary(report)}"]
    notes += _write_predictions(folder, config, subject, description, report) if written.is_onnx else []
    write_manifest(folder, {**description, "notes": notes})
    if (folder / SCRIPT).exists():
        has_own_task = not type(subject.task).__module__.startswith("pipelines.")
        notes.append(f"{SCRIPT} takes raw rows, without Lockstep: {check_script(folder, has_own_task)}")
    return report, notes


def _write_predictions(folder: Path, config: Config, subject: Subject, description: Mapping[str, Any], report: list[Row]) -> list[str]:
    """Write the script that predicts from raw rows, with its examples; or a note that says why there is none."""
    try:
        modules = script_modules(description)
    except ExportError as error:
        return [f"there is no {SCRIPT}: {error}"]
    rows = example_rows(subject)
    is_exact = description["target"] == "onnx"
    inexact = description["answer"].get("inexact", ())
    predictions = [{name: value for name, value in row.items() if name not in inexact} for row in example_predictions(subject, rows)]
    examples = {"rows": rows_to_json(rows), "predictions": predictions, "exact": is_exact, "tolerance": TOLERANCE}
    readme = readme_text(config.name, description, config.source.sql, examples, report_summary(report), modules)
    write_script(folder, modules, readme, examples)
    return []


def report_summary(report: list[Row]) -> str:
    """The target's row of a report in a few words."""
    row = report[1]
    return f"largest difference {row['max_difference']:.2g}, {row['equal_decisions']:.4%} equal decisions, {_rows_text(row)}"


def _rows_text(row: Row) -> str:
    """How many rows were compared."""
    return f"{row['rows']:,} test rows" + (f" and {row['other_rows']:,} others" if row["other_rows"] else "")


def report_line(row: Row) -> str:
    """One row of a report, for the log."""
    fields = []
    for name, value in row.items():
        if name != "model" and value not in (None, ""):
            text = f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
            fields.append(f"{name.replace('_', ' ')} {text}")
    return f"{row['model']:15}{', '.join(fields)}"
