"""Writes one target of a run's model, and logs the folder with the run. It has a manifest, and appears whole or not at all."""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipelines.config import Config
from pipelines.errors import DatasetError
from pipelines.serving.export.examples import example_predictions, example_rows, rows_in_json
from pipelines.serving.export.parity import Row, compare_outputs
from pipelines.serving.export.script import SCRIPT, TOLERANCE, answer_form, check_script, unknown_encoders, write_script
from pipelines.serving.export.subject import Subject, read_subject
from pipelines.serving.export.targets import Candidate, TargetFiles, target_writer
from pipelines.tracking.models import log_export


def readme_text(name: str, manifest: Mapping[str, Any], query: str, examples: Mapping[str, Any]) -> str:
    """Markdown that says how to predict with the folder; `manifest` and `examples` are the content of its files."""
    encoders = [(entry.get("encoded by") or entry["refuses"])["encoder"]["encoder"] for entry in manifest["inputs"]]
    template = Path(__file__).parent / "templates/readme.txt"
    return template.read_text().format(
        name=name,
        run=manifest["run"],
        digest=manifest["dataset"]["digest"][:12],
        row=_line(examples["rows"][0]),
        prediction=_line(examples["predictions"][0]),
        pictures="; pictures in files need Pillow" if "image" in encoders else "",
        columns="\n".join(f"| {column} | {kind} |" for column, kind in manifest["rows"].items()),
        query=query.strip().replace("\n", "\n    "),
    )


def _line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1_000 else f"{text[:1_000]}…"


MANIFEST, PARITY = "manifest.json", "parity.json"
FORMAT = 1


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
    (folder / PARITY).write_text(json.dumps({"split": "test", "rows": rows}, indent=1) + "\n")


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
        "inputs": [_input(subject, column.name, first) for column in subject.columns],
        "packs": subject.packs,
        "answer": answer_form(subject.task.prediction_form()),
        "classes": list(subject.task.data.classes),
        "notes": list(written.notes),
    }


def write_manifest(folder: Path, description: Mapping[str, Any]) -> None:
    """Write the manifest: the description, and the SHA-256 of every other file."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    digests = {file.relative_to(folder).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}
    (folder / MANIFEST).write_text(json.dumps({**description, "files": digests}, indent=1) + "\n")


def _input(subject: Subject, name: str, candidate: Candidate) -> Mapping[str, Any]:
    """One input of the written model: a raw column of the query, or a tensor column with the encoder that makes it."""
    fitted = subject.manifest.encoders[name]
    encoder = {"columns": list(fitted.inputs), "encoder": fitted.feature, "state": fitted.state}
    if candidate.takes_raw_numbers and name in subject.numeric.encoders:
        source = f"column {fitted.inputs[0]} of the query, NULL as NaN"
        return {"name": name, "takes": source, "dtype": "float64", "shape": [], "refuses": encoder}
    column = fitted.column
    dtype = candidate.dtypes.get(column.dtype, column.dtype)
    return {"name": name, "takes": "the encoded column", "dtype": dtype, "shape": list(column.shape), "encoded by": encoder}


log = logging.getLogger(__name__)


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
        written = write(subject, config.export, draft)
        report = compare_outputs(subject, written.candidates, config.export.max_batch_rows)
        write_parity(draft, report)
        description = describe_export(subject, target, written)
        notes = [*written.notes, *_write_predictions(draft, config, subject, description)] if written.is_onnx else written.notes
        write_manifest(draft, {**description, "notes": list(notes)})
        if (draft / SCRIPT).exists():
            notes = [*notes, f"{SCRIPT} takes raw rows, without Lockstep: {check_script(draft)}"]
    for note in notes:
        log.info("note      %s", note)
    for row in report:
        log.info("%s", report_line(row))
    log_export(config.tracking.uri, run_id, folder, target, {f"export.{target}": report_summary(report)})
    log.info("written   %s, and logged with run %s under export/%s", folder, run_id, target)
    return folder


def _write_predictions(folder: Path, config: Config, subject: Subject, description: Mapping[str, Any]) -> list[str]:
    """Write the script that predicts from raw rows, with its examples; or a note that says why there is none."""
    encoders = [subject.manifest.encoders[column.name].feature for column in subject.columns]
    if unknown := unknown_encoders(encoders):
        return [f"there is no {SCRIPT}, which lacks the encoder {', '.join(unknown)}; encode these columns yourself"]
    rows = example_rows(subject)
    is_exact = description["target"] == "onnx"
    examples = {"rows": rows_in_json(rows), "predictions": example_predictions(subject, rows), "exact": is_exact, "tolerance": TOLERANCE}
    write_script(folder, encoders, readme_text(config.name, description, config.source.sql, examples), examples)
    return []


def report_summary(report: list[Row]) -> str:
    """The target's row of a report in a few words."""
    row = report[1]
    decisions = "" if row["equal_decisions"] is None else f", {row['equal_decisions']:.4%} equal decisions"
    return f"largest difference {row['max_difference']:.2g}{decisions}, {row['rows']:,} rows"


def report_line(row: Row) -> str:
    """One row of a report, for the log."""
    fields = [f"{key.replace('_', ' ')} {_value_text(value)}" for key, value in row.items() if key != "model" and value not in (None, "")]
    return f"{row['model']:15}{', '.join(fields)}"


def _value_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
