"""From a config, a model and an input to a committed output.

1. The model is downloaded, verified, and compared with the config, before Spark starts.
2. The columns of the tables or of the query are compared with the model's, before any data are read.
3. Model, settings and checksums of the input name the snapshot. If it exists, the run ends here.
4. Files that an earlier snapshot covers are taken over; the rows of the others are predicted and written, or refused.
5. If the row counts agree, the manifest is created, which makes the output visible.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import read_tables
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, Report, merge_reports, remove_attempt
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.source_files import collect_files
from pipelines.data.versions.versions import confirm
from pipelines.errors import ConfigError, DatasetError
from pipelines.etl.identity import check_unchanged
from pipelines.etl.quarantine import write_malformed
from pipelines.etl.refusals import REASON, check_quarantined
from pipelines.etl.splits.split_assignment import raw_schema
from pipelines.etl.windows import check_order
from pipelines.serving.batch.fetched_model import Model, fetch_model, name_features
from pipelines.serving.batch.input_columns import columns_read, detect_formats, schema_of_rows
from pipelines.serving.batch.input_tables import InputTables, check_windows_are_complete, open_input, set_input_paths
from pipelines.serving.batch.predictions_manifest import (
    FORMAT,
    Predictions,
    commit_predictions,
    file_count,
    find_base,
    read_predictions,
    sweep,
)
from pipelines.serving.batch.worker import WRITTEN, Job, predict_rows
from pipelines.serving.model.column_casts import misfits
from pipelines.serving.model.predictor import REFUSED
from pipelines.spark.ambient_settings import ambient_identity, check_executors
from pipelines.spark.job_endings import driver_errors, stop_tasks
from pipelines.spark.session import restored_settings, session, suit_columns, temporary_cache, weigh_batches
from pipelines.spark.stages import Stages

log = logging.getLogger(__name__)


@driver_errors()
@restored_settings()
def predict_tables(config: Config, uri: str, inputs: Sequence[str], place: str, keep: Sequence[str] = ()) -> Predictions:
    """Predict the `inputs`, `[TABLE=]PATH`, with the model `uri` into the folder `place`, unless that is done already.

    Without inputs, the tables of the config are read. `keep` are the columns to write beside the predictions, by default all. Raises the
    LockstepErrors of its stages; then nothing is committed.
    """
    stages = Stages()
    with TemporaryDirectory(prefix="lockstep-model-") as folder:
        with stages("model"):
            model = fetch_model(config, uri, folder)
        config, names = set_input_paths(name_features(config, model), inputs, str(model.about["table"]))
        _check_apart(place, config)
        config = detect_formats(config, names)
        with stages("spark"):
            spark = stages.spark = session(config.name)
            check_executors(spark)
        with temporary_cache(spark):
            source = open_input(spark, config, model, names)
            before: Sources = {name: table.state() for name, table in source.tables.items()}
            kept_columns = _kept_columns(spark, source, model, keep)
            # Spark copies the archive to each executor before its next task, whatever job that is of. So it lies in the folder of the
            # application, which Spark removes with it, and not in one that is gone before that task.
            spark.sparkContext.addFile(shutil.copy(model.archive, SparkFiles.getRootDirectory()))
            predictions = _predict(spark, source, model, kept_columns, place, before, stages)
            stages.log_seconds()
            return predictions


def _check_apart(place: str, config: Config) -> None:
    _, folder = storage.locate(place)
    for name, table in config.source.tables.items():
        for path in table.paths:
            if "://" not in path + place and f"{folder}/".startswith(f"{storage.locate(path)[1]}/"):
                raise ConfigError(f"--output {place} lies in {path}, where source.tables.{name} is read from; give a folder outside")


def _kept_columns(spark: SparkSession, source: InputTables, model: Model, keep: Sequence[str]) -> tuple[str, ...]:
    """The columns to keep. Raises ConfigError if there are no such columns, or if the model's are missing or of another type."""
    rows = source.rows(spark, model.takes).drop(REASON)
    schema = raw_schema(rows)
    where = " and ".join(f"source.tables.{name}" for name in source.tables) if model.takes == "rows" else "source.query"
    if faults := misfits(model.inputs, schema_of_rows(rows, schema, model.inputs)):
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        columns = f"it gives {name_list(schema.names)}"
        raise ConfigError(f"{where} gives {'; '.join(faults[:3])}{more}, which the model {model.uri} takes; {columns}")
    if missing := [name for name in keep if name not in schema.names]:
        raise ConfigError(f"--keep {' '.join(missing)}: {where} gives no such column; it gives {name_list(schema.names, missing[0])}")
    columns_to_keep = tuple(dict.fromkeys(keep))
    if not keep:
        # All columns, but of an input that lacks columns for the target not those that have their name, or the target's.
        windows = source.config.source.windows
        left_out = set(windows.generated if windows else ())
        if source.lacking:
            features, targets = columns_read(source.config)
            left_out |= (targets - features).union(*(lacking.names for lacking in source.lacking.values()))
        columns_to_keep = tuple(name for name in schema.names if name not in left_out)
    if twice := sorted({name for name in columns_to_keep if name in model.outputs.names} - {REFUSED}):
        raise ConfigError(f"--keep: {', '.join(twice)} is also a column of the predictions; name the columns to keep, without it")
    return columns_to_keep


def _predict(
    spark: SparkSession, source: InputTables, model: Model, keep: tuple[str, ...], place: str, before: Sources, stages: Stages
) -> Predictions:
    with stages("checksums"):
        sources = source.checksum_files(spark)
    settings = _settings(spark, source, model, keep)
    filesystem, folder = storage.locate(place)
    snapshot = sha256(json.dumps([settings, source.identity(sources)], sort_keys=True).encode()).hexdigest()[:12]
    attempt = Attempt(filesystem, f"{folder}/{snapshot}", uuid4().hex[:8])
    if earlier := read_predictions(filesystem, attempt.root):
        log.info("%s is up to date", attempt.root)
        confirm(filesystem, attempt.root)
        return earlier
    storage.check_creation(filesystem, folder)
    base, new_files = find_base(filesystem, folder, settings, sources) if source.is_separable(sources) else (None, sources)
    if base:
        log.info("%s covers %d files; %d are new", base.snapshot, file_count(base), sum(map(len, new_files.values())))
    try:
        job = Job(attempt, model.archive.name, model.takes, keep)
        with stages("predict"), source_errors(source.config.source):
            manifest = _write(spark, source.select(new_files) if base else source, model, job, snapshot, settings)
        check_unchanged(source.tables, before)
        manifest = _merge(manifest, base) if base else manifest
        with stages("commit"):
            manifest = commit_predictions(attempt, manifest, sources)
    except BaseException:
        with suppress(DatasetError, OSError):
            committed = read_predictions(filesystem, attempt.root)
            if committed is None or committed.attempt != attempt.name:
                stop_tasks()
                remove_attempt(filesystem, attempt.root, attempt.name)
        raise
    with suppress(DatasetError, OSError):
        sweep(filesystem, folder)
    return manifest


def _settings(spark: SparkSession, source: InputTables, model: Model, keep: tuple[str, ...]) -> dict[str, Any]:
    """The values that decide the output besides the bytes of the input, as JSON has them."""
    section = source.config.source
    dumped = section.model_dump(mode="json", by_alias=True, include={"tables"}, exclude=section.excluded_from_identity)
    query: dict[str, Any] = {"query": section.sql, "expect": dict(section.expect)} if model.takes == "query" else {}
    if query:  # whose values the engine decides too, as it does those of a dataset
        query["spark"] = {"version": spark.version, **ambient_identity(spark)}
    if query and section.windows:
        query["windows"] = section.windows.model_dump(mode="json")
    tables = {name: dumped["tables"][name] for name in source.tables}
    return {"format": FORMAT, "model": model.files_digest, "takes": model.takes, "tables": tables, "keep": list(keep), **query}


def _write(spark: SparkSession, source: InputTables, model: Model, job: Job, snapshot: str, settings: dict[str, Any]) -> Predictions:
    """Predict all rows of the input. Returns the manifest of the files."""
    files, report, rows_parsed, rows_in = _predict_rows(spark, source, model, job) if source.tables else ([], Report(), 0, 0)
    return Predictions(
        snapshot=snapshot,
        attempt=job.attempt.name,
        model=model.uri,
        model_digest=model.about["digest"],
        dataset_digest=model.about["dataset"],
        settings=settings,
        inputs={},
        files={f"{snapshot}/{file}": rows for file, rows in sorted(files)},
        quarantine={f"{snapshot}/{file}": rows for file, rows in sorted(report.quarantine.items())},
        rows_parsed=rows_parsed,
        rows_in=rows_in,
        rows_out=report.accepted,
        refused=dict(sorted(report.refused.items())),
        versions={package: version(package) for package in ("pyspark", "pyarrow")},
    )


def _predict_rows(spark: SparkSession, source: InputTables, model: Model, job: Job) -> tuple[list[tuple[str, int]], Report, int, int]:
    """The files with their rows, the report of the tasks, and how many records were parsed and rows came in."""
    tables = read_tables(spark, source.tables, suit_columns)
    unfit = source.complete_views(spark, job.takes)
    malformed = Report()
    for refused in (tables.malformed, unfit):
        malformed.add(write_malformed(refused, job.attempt) if refused is not None else Report())
    settings = source.config.source
    # The rows of the query before windows leave some out.
    series_rows = check_order(spark.sql(settings.sql), settings.windows) if job.takes == "query" and settings.windows else 0
    rows = source.rows(spark, job.takes)
    suit_columns(rows)
    weigh_batches(rows, sum(collect_files(table.state()).bytes for table in source.tables.values()) / max(tables.rows_parsed, 1))
    task_rows = rows.mapInArrow(partial(predict_rows, job), WRITTEN).toArrow()
    report = merge_reports(task_rows)
    check_windows_are_complete(settings.windows, series_rows, report.accepted + report.refused.total())
    report.add(malformed)
    faults = {reason: count for reason, count in report.refused.items() if reason not in model.dropping}
    check_quarantined(report.accepted + sum(faults.values()), faults, settings.max_quarantined, report.samples)
    # Tables count their rows apart from the tasks; a query's rows are counted by the tasks only.
    rows_in = tables.rows_parsed if job.takes == "rows" else report.accepted + report.refused.total()
    files = [(row["file"], row["rows"]) for row in task_rows.select(["file", "rows"]).to_pylist() if row["file"]]
    return files, report, tables.rows_parsed, rows_in


def _merge(new: Predictions, base: Predictions) -> Predictions:
    """The output of all files: of those that were predicted now, and of those that `base` covers."""
    refused = {reason: base.refused.get(reason, 0) + new.refused.get(reason, 0) for reason in sorted({*base.refused, *new.refused})}
    counts = {name: getattr(base, name) + getattr(new, name) for name in ("rows_parsed", "rows_in", "rows_out")}
    files, quarantine = {**base.files, **new.files}, {**base.quarantine, **new.quarantine}
    return new.model_copy(update={"files": files, "quarantine": quarantine, "refused": refused, "continues": base.snapshot, **counts})
