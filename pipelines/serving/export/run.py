"""Writes one target of a run's model, and logs the folder with the run."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.config import Config
from pipelines.errors import DatasetError
from pipelines.serving.export.artifact import commit_folder, describe_export, readme_text, write_manifest, write_parity
from pipelines.serving.export.examples import example_predictions, example_rows, rows_in_json
from pipelines.serving.export.parity import Row, compare_outputs
from pipelines.serving.export.script import SCRIPT, TOLERANCE, check_script, unknown_encoders, write_script
from pipelines.serving.export.standalone.answers import LEFT_OUT
from pipelines.serving.export.subject import Subject, read_subject
from pipelines.serving.export.targets import target_writer
from pipelines.tracking.models import log_export

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
    form = description["answer"]["form"]
    left_out = LEFT_OUT.get(form, frozenset())
    predictions = [{name: value for name, value in row.items() if name not in left_out} for row in example_predictions(subject, rows)]
    examples = {"rows": rows_in_json(rows), "predictions": predictions, "exact": is_exact, "tolerance": TOLERANCE}
    write_script(folder, encoders, form, readme_text(config.name, description, config.source.sql, examples), examples)
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
