"""Description of the data as JSON. It is kept beside the page, so that the page can be drawn again and other programs can read it.

In columns with few values, many rows have the features of a training row by chance; how many is among it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.raw import is_list, is_text
from pipelines.data.versions.data_profile import TEXT_LENGTH, SparkStage, Survey
from pipelines.data.versions.manifest import SPLITS, Manifest
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.source_files import collect_files
from pipelines.report.data_profile import findings
from pipelines.report.data_profile.column_profiles import describe_columns, encoders_by_column, name_pieces
from pipelines.report.data_profile.samples import describe_samples, sample_record

_MOST_FILES, _MOST_COLUMNS = 200, 400
"""Of the JSON: files of a source, and columns."""
NEARLY_UNIQUE = 0.5
"""Share of a column's values that occur once in the sample, above which its values are taken for unique: equal ones are no chance."""
_WORDS = re.compile(r"[\W_]+")


def describe_data(survey: Survey) -> dict[str, Any]:
    """A survey for JSON, with what the tests have found first."""
    manifest, dataset = survey.manifest, survey.config.dataset
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
        "columns": describe_columns(survey, _MOST_COLUMNS),
        "samples": describe_samples(survey),
        "raw_columns": len({column for fitted in manifest.encoders.values() for column in fitted.inputs}),
        "refused": [
            {"reason": reason, "rows": rows, **sample_record(survey, reason)}
            for reason, rows in sorted(manifest.quarantined.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
        "sources": [_source(table, files) for table, files in survey.sources.items()],
        "query": survey.config.source.sql,
        "expect": dict(survey.config.source.expect),
        "seconds": dict(survey.seconds),
        "spark": [_spark_stage(stage) for stage in survey.spark],
        "event_log": survey.event_log,
        "versions": manifest.versions,
    }


def _source(table: str, files: Sequence[SourceFile]) -> dict[str, Any]:
    size = collect_files(files).bytes
    return {"table": table, "files": len(files), "bytes": size, "listed": list(map(asdict, files[:_MOST_FILES]))}


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
    columns = encoders_by_column(manifest.encoders)
    yield from findings.constants(_statistics_of_values(manifest), train, columns)
    yield from findings.drifts(survey.samples, [column for column in columns if column not in dataset.key], survey.counts)
    compared = [column for column in features if column not in dataset.key] or list(features)
    rows = manifest.splits[SPLITS[0]].rows if SPLITS[0] in manifest.splits else 0
    samples = survey.samples

    def chance_share(split: str) -> float:
        return share_by_chance(train, samples[split], compared, rows) if split in samples else 0.0

    yield from findings.overlaps(survey.contents, chance_share)
    yield from findings.skews(survey.spark)


def _statistics_of_values(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """The profile without counts that are of words or characters: texts of a single word may differ in how often they have it."""
    columns = encoders_by_column(manifest.encoders)
    split_columns = {column for column, encoders in columns.items() if name_pieces(encoders.values()) != "values"}
    return {
        column: {name: value for name, value in statistics.items() if name != "distinct" or column not in split_columns}
        for column, statistics in manifest.profile.items()
    }


def share_by_chance(train: pa.Table, other: pa.Table, columns: Iterable[str], train_rows: int) -> float:
    """The share of rows like those of `other` that some of `train_rows` training rows equal in all columns, if columns are independent
    of each other: the mean of 1 − (1 − p)^rows, where p is the product of the frequencies of the row's values.

    `train` and `other` are samples. Long texts, lists and bytes, of which a sample has only a part, are taken for unique.
    """
    chances, sampled_columns = np.ones(len(other)), set(train.column_names)
    for name in columns:
        if not chances.any() or name not in sampled_columns:
            break
        chances *= _frequencies(train[name], other[name])
    return float(-np.expm1(train_rows * np.log1p(-np.minimum(chances, 1 - 1e-12))).mean()) if len(other) else 0.0


def _frequencies(train: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """How frequent each value of `other` is in the training split."""
    kind = train.type
    if is_list(kind) or types.is_nested(kind):
        return np.zeros(len(other))
    counts = Counter(_normal(value) for value in train.to_pylist())
    values = [_normal(value) for value in other.to_pylist()]
    present_rows = sum(count for value, count in counts.items() if value is not None)
    unique_rows = sum(count == 1 for value, count in counts.items() if value is not None)
    is_unique = unique_rows > NEARLY_UNIQUE * present_rows
    if is_text(kind) and any(value is not None and len(value) >= TEXT_LENGTH for value in train.to_pylist()):
        is_unique = True
    unseen, twins = (0.0, 1) if is_unique else (0.5, 0)  # of unique values, a single one in the sample is the twin itself
    rows = [counts[None] if value is None else max(counts[value] - twins, unseen) if value in counts else unseen for value in values]
    return np.array(rows, float) / max(len(train), 1)


def _normal(value: object) -> object:
    """As `statistics.leakage` compares values."""
    if isinstance(value, str):
        return _WORDS.sub(" ", value.lower()).strip()
    if isinstance(value, float):
        return None if value != value else float(np.float32(value)) + 0.0
    return value
