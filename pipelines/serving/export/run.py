"""Writes one target of a run's model, and logs the folder with the run."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.config import Config
from pipelines.config.serving import Export
from pipelines.errors import DatasetError, ExportError
from pipelines.serving.export.artifact import commit_folder, describe_export, readme_text, write_manifest, write_parity
from pipelines.serving.export.examples import example_predictions, example_rows
from pipelines.serving.export.json_rows import rows_to_json
from pipelines.serving.export.parity import LEAST_ROWS, Row, compare_outputs
from pipelines.serving.export.script import SCRIPT, TOLERANCE, check_script, is_own_task, script_modules, write_script
from pipelines.serving.export.subject import Subject, read_subject
from pipelines.serving.export.targets import Write, target_writer
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

    Raises ExportError if the written model decides otherwise than the model in MLflow on more rows than the config permits.
    """
    written = write(subject, config.export, folder)
    report = compare_outputs(subject, written.candidates, config.export.max_batch_rows, least_rows=LEAST_ROWS)
    _check_decisions(report[1], target, config.export)
    write_parity(folder, report)
    description = describe_export(subject, target, written)
    notes = [*written.notes, f"the model in MLflow was compared with it: {report_summary(report)}"]
    notes += _write_predictions(folder, config, subject, description, report) if written.is_onnx else []
    write_manifest(folder, {**description, "notes": notes})
    if (folder / SCRIPT).exists():
        notes.append(f"{SCRIPT} takes raw rows, without Lockstep: {check_script(folder, is_own_task(subject.task))}")
    return report, notes


def _check_decisions(row: Row, target: str, settings: Export) -> None:
    share = float(row["equal_decisions"] or 0.0)
    if share < settings.least_equal_decisions:
        remedy = "export to onnx, which computes in floats" if target == "onnx-int8" else "choose another target"
        raise ExportError(
            f"--to {target} decides as the model in MLflow in {share:.2%} of {_rows_text(row)}, and export.least_equal_decisions is "
            f"{settings.least_equal_decisions:g}; {remedy}, or lower the setting if that is enough for you"
        )


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
    fields = [f"{key.replace('_', ' ')} {_value_text(value)}" for key, value in row.items() if key != "model" and value not in (None, "")]
    return f"{row['model']:15}{', '.join(fields)}"


def _value_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
