"""Makes a version of the rows of a parent version and of those that came to the tables since: only these are read, encoded and written.

1. `find_parent`     opens the version that the flag `--from` names.
2. `plan_increment`  asks each table for its new rows, and finds out whether new rows of the query follow from them alone.
3. `resolve_dataset` is the dataset with the features that the parent has; the encoders keep the parent's state.
4. `refuse_known_keys` keeps the keys unique over old and new rows.
5. `inherit`         puts the parent's row groups before the new ones.

What no increment can do is done in full; NoIncrementError says why.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import Config
from pipelines.config.dataset.dataset import ByFraction, Dataset, FoldSplit
from pipelines.config.features import encoder_settings
from pipelines.config.messages.words import name_list
from pipelines.data.sources.base import NoIncrementError, RawTable, RawTables, distribute
from pipelines.data.versions.commit import Report
from pipelines.data.versions.manifest import SPLITS
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.row_keys import has_keys, read_keys
from pipelines.data.versions.rows_digest import rows_sum
from pipelines.data.versions.schema import schema_from_text
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import DatasetError, SourceError
from pipelines.etl.identity import version_name
from pipelines.etl.query_growth import check_growth
from pipelines.etl.refusals import accepted_rows, refuse
from pipelines.etl.splits.split_assignment import CONTENT, ROW, content_hash, raw_schema

PREVIOUS = "previous"
"""In place of a version's name: the one that ETL made or confirmed last."""
MOST_COMPARED_ROWS = 100_000_000
"""New rows up to which the driver compares keys, in 16 bytes each."""
_MATCHES = "row long, content long"


@dataclass(frozen=True)
class Increment:
    """What an ETL adds to a parent."""

    parent: Version
    tables: RawTables
    """The tables to read: those with new rows, without the others of theirs, and those that a join reads in full."""


def find_parent(config: Config, name: str) -> Version:
    """The version to start from. Raises DatasetError if there is none, or if it is of another pipeline."""
    if name == PREVIOUS:
        return open_version(config.dataset.path, config.data_identity)
    parent = open_version(f"{config.dataset.path}/{name}")
    if parent.manifest.identity != config.data_identity:
        raise DatasetError(
            f"--from {name}: that version was made from another `source` or `dataset` than this config has; name a version of this config, "
            f"or {PREVIOUS}"
        )
    return parent


def plan_increment(spark: SparkSession, config: Config, tables: RawTables, parent: Version) -> Increment | None:
    """What to read of the tables, whose views are registered; None if no rows came. Raises NoIncrementError if the parent's rows may not be
    those that an ETL in full would give, or if new rows of the query do not follow from new rows of the tables."""
    sources = parent.sources()
    _check_dataset(config.dataset, parent)
    _check_same_software(spark, config, tables, sources, parent)
    grown = {name: table for name, old in tables.items() if (table := _table_since(spark, name, old, sources)) is not None}
    if not grown:
        return None
    reads_in_full = check_growth(spark, config.source, frozenset(grown))
    return Increment(parent, {name: grown.get(name, tables[name]) for name in tables if name in grown or name in reads_in_full})


def _table_since(spark: SparkSession, name: str, table: RawTable[Any], sources: Sources) -> RawTable[Any] | None:
    """A table of the new rows; None if there are none."""
    try:
        return table.since(spark, sources.get(name, ()))
    except NoIncrementError as reason:
        raise NoIncrementError(f"source.tables.{name}: {reason}") from None


def _check_dataset(dataset: Dataset, parent: Version) -> None:
    """Raises NoIncrementError for a dataset in which new rows change the place of earlier ones, or whose parent lacks what that takes."""
    split = dataset.split
    if isinstance(split, FoldSplit) or (isinstance(split, ByFraction) and split.stratify):
        raise NoIncrementError("dataset.split has folds or stratify, so that new rows may move earlier ones to another split")
    if not all(summary.rows_digest for summary in parent.manifest.splits.values()):
        raise NoIncrementError(f"{parent.manifest.version} is of an earlier ETL, which made no digests of sets of rows")
    if any(settings.packs for settings in dataset.encoders.values()):
        if dataset.key:
            raise NoIncrementError("documents are packed into windows, in which none is found again by its key")
    elif dataset.key and not has_keys(parent.filesystem, parent.root, parent.row_groups):
        raise NoIncrementError(f"{parent.manifest.version} has no hashes of its keys")


def _check_same_software(spark: SparkSession, config: Config, tables: RawTables, sources: Sources, parent: Version) -> None:
    """Raises NoIncrementError unless this ETL would give the parent its name: else encoders, order or Spark may differ."""
    expected = version_name(config, tables, sources, spark, parent.manifest.parent_digest)
    if parent.manifest.version != expected:
        raise NoIncrementError(
            f"{parent.manifest.version} was made by other versions of Spark or of encoders, in another time zone, or its files have moved"
        )


def resolve_dataset(dataset: Dataset, parent: Version) -> Dataset:
    """The dataset with the features of the parent, where the config has patterns or `auto`."""
    if dataset.is_resolved:
        return dataset
    encoders = parent.manifest.encoders
    features = {name: encoder_settings(fitted.feature) for name, fitted in encoders.items() if fitted.column.role == "feature"}
    return dataset.model_copy(update={"features": features})


def check_schema(rows: DataFrame, parent: Version) -> None:
    """Raises SourceError if the query gives other columns than it gave the parent."""
    before = {field.name: field.type for field in schema_from_text(parent.manifest.raw_schema)}
    now = {field.name: field.type for field in raw_schema(rows)}
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        raise SourceError(
            f"the query gives {name_list(changed)} with another type than {parent.manifest.version} has: {name} is "
            f"{now.get(name, 'not there')}, and was {before.get(name, 'not there')}; cast it in source.query, or run without --from"
        )


def refuse_known_keys(spark: SparkSession, key: tuple[str, ...], parent: Version, rows: DataFrame) -> DataFrame:
    """Refuse new rows that equal rows of the parent, as an ETL in full does. Raises NoIncrementError if a key came again with other values,
    since one of two rows would have to leave."""
    if not key:
        return rows
    new = accepted_rows(rows).select(ROW, content_hash(rows).alias(CONTENT)).limit(MOST_COMPARED_ROWS + 1).toArrow()
    if len(new) > MOST_COMPARED_ROWS:
        raise NoIncrementError(f"more than {MOST_COMPARED_ROWS:,} rows came, whose keys one driver does not compare with earlier ones")
    known = _known_keys(spark, new[ROW].to_numpy(), parent)
    if not len(known):
        return rows
    contents = dict(zip(new[ROW].to_pylist(), new[CONTENT].to_pylist(), strict=True))
    altered = [row for row, content in zip(known["row"].to_pylist(), known["content"].to_pylist(), strict=True) if contents[row] != content]
    if altered:
        raise NoIncrementError(f"{len(altered):,} rows came again under a known key ({', '.join(key)}) with other values")
    repeats = F.broadcast(spark.createDataFrame([(row,) for row in sorted(set(known["row"].to_pylist()))], f"{ROW} long"))
    marked = rows.join(repeats.withColumn("__known", F.lit(True)), ROW, "left")
    return refuse(marked, F.when(F.col("__known"), F.lit(f"repeated key: {', '.join(key)}"))).drop("__known").select(*rows.columns)


def _known_keys(spark: SparkSession, rows: np.ndarray, parent: Version) -> pa.Table:
    """The keys of the parent that are among `rows`, an int64 array of hashes."""
    wanted = spark.sparkContext.broadcast(np.unique(rows))
    groups: dict[str, list[RowGroup]] = {}
    for group in parent.row_groups:
        groups.setdefault(group.file, []).append(group)
    find = partial(_find_keys, wanted, replace(parent, row_groups=()))
    return distribute(spark, list(groups.values()), find, _MATCHES).toArrow()


def _find_keys(wanted: Broadcast, parent: Version, groups: list[RowGroup]) -> Iterator[pa.RecordBatch]:
    for _, keys in read_keys(parent.filesystem, parent.root, groups):
        hashes = keys["row"].to_numpy()
        place = np.searchsorted(wanted.value, hashes)
        is_known = wanted.value[np.minimum(place, len(wanted.value) - 1)] == hashes
        yield from keys.filter(pa.array(is_known)).cast(keys.schema).to_batches()


def inherit(parent: Version, report: Report) -> None:
    """Put the parent's row groups before those of the report, whose parts are numbered after them, and add what was counted of its rows."""
    inherited = [replace(group, file=shared_file(group.file, parent.manifest.version)) for group in parent.row_groups]
    first = {split: 1 + max((group.part for group in inherited if group.split == split), default=-1) for split in SPLITS}
    report.row_groups = [*inherited, *(replace(group, part=first[group.split] + group.part) for group in report.row_groups)]
    for split, summary in parent.manifest.splits.items():
        report.row_sums[split] += rows_sum(summary.rows_digest)
    for name, fitted in parent.manifest.encoders.items():
        if fitted.class_counts:
            report.count_classes(name, fitted.class_counts)


def shared_file(file: str, version: str) -> str:
    """The path of a part of another version, relative to a version beside it."""
    return file if file.startswith("../") else f"../{version}/{file}"
