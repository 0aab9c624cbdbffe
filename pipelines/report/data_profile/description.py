"""Description of the data as JSON. It is kept beside the page, so that the page can be drawn again and other programs can read it."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pipelines.data.versions.data_profile import SparkStage, Survey
from pipelines.data.versions.manifest import SPLITS
from pipelines.report.data_profile import findings
from pipelines.report.data_profile.coincidence import share_by_chance
from pipelines.report.data_profile.columns import describe_columns

_MOST_FILES, _RECORD_LENGTH, _MOST_COLUMNS = 200, 300, 400


def describe_data(survey: Survey) -> dict[str, Any]:
    """A survey for JSON, with what the tests have found first."""
    manifest, dataset = survey.manifest, survey.config.dataset
    columns = describe_columns(survey, _MOST_COLUMNS)
    return {
        "findings": [asdict(finding) for finding in _findings(survey)],
        "shares": manifest.shares.model_dump(mode="json"),
        "warnings": list(manifest.warnings),
        "pipeline": manifest.name,
        "version": manifest.version,
        "digest": manifest.digest,
        "created": manifest.created.isoformat(timespec="seconds"),
        "run_id": manifest.run_id,
        "path": dataset.path,
        "key": list(dataset.key),
        "split": dataset.split.model_dump(mode="json"),
        "rows": {split: summary.rows for split, summary in manifest.splits.items()},
        "bytes": {split: summary.bytes for split, summary in manifest.splits.items()},
        "sampled": {split: len(rows) for split, rows in survey.samples.items()},
        "balance": manifest.balance.model_dump(mode="json") if manifest.balance else None,
        "columns": columns,
        "raw_columns": len({column for fitted in manifest.encoders.values() for column in fitted.inputs}),
        "refused": [
            {"reason": reason, "rows": rows, "record": survey.refused.get(reason, "")[:_RECORD_LENGTH]}
            for reason, rows in sorted(manifest.quarantined.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
        "sources": [
            {
                "table": table,
                "files": len(files),
                "bytes": sum(file.bytes for file in files),
                "listed": list(map(asdict, files[:_MOST_FILES])),
            }
            for table, files in survey.sources.items()
        ],
        "query": survey.config.source.sql,
        "expect": dict(survey.config.source.expect),
        "seconds": dict(survey.seconds),
        "spark": [_spark_stage(stage) for stage in survey.spark],
        "event_log": survey.event_log,
        "versions": manifest.versions,
    }


def _spark_stage(stage: SparkStage) -> dict[str, Any]:
    fields = asdict(stage)
    return {"stage": stage.stage, "number": stage.number, "what": fields.pop("call"), **fields, "skew": round(stage.skew, 2)}


def _findings(survey: Survey) -> Iterator[findings.Finding]:
    manifest, dataset = survey.manifest, survey.config.dataset
    if manifest.shares.said:
        yield findings.Finding("shares", manifest.shares.said)
    train = survey.samples.get(SPLITS[0], pa.table({}))
    features = dict.fromkeys(column for name in dataset.features for column in manifest.encoders[name].inputs)
    for name in dataset.target:
        for column in manifest.encoders[name].inputs:
            yield from findings.leaks(train, features, column)
    columns = dict.fromkeys(column for fitted in manifest.encoders.values() for column in fitted.inputs)
    yield from findings.constants(manifest.profile, train, columns)
    yield from findings.drifts(survey.samples, [column for column in columns if column not in dataset.key], survey.counts)
    compared = [column for column in features if column not in dataset.key] or list(features)
    rows = manifest.splits[SPLITS[0]].rows if SPLITS[0] in manifest.splits else 0
    samples = survey.samples

    def chance_share(split: str) -> float:
        return share_by_chance(train, samples[split], compared, rows) if split in samples else 0.0

    yield from findings.overlaps(survey.contents, chance_share)
    yield from findings.skews(survey.spark)
