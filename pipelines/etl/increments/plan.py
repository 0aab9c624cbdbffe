"""Finds the rows that came since a parent version was made, or the reason why all rows have to be read."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.config.dataset.dataset import ByFraction, Dataset, FoldSplit
from pipelines.config.features import encoder_settings
from pipelines.config.messages.words import name_list, show_count
from pipelines.data.sources.base import NoIncrementError, RawTable, RawTables
from pipelines.data.versions.raw_inputs import Sources
from pipelines.data.versions.row_keys import has_keys
from pipelines.data.versions.schema import schema_from_text
from pipelines.data.versions.versions import Version, open_named_version, versions
from pipelines.errors import DatasetError, OutdatedError
from pipelines.etl.identity import version_name
from pipelines.etl.increments.query_growth import check_growth
from pipelines.etl.splits.split_assignment import raw_schema, repeat_reason

PREVIOUS = "previous"
"""In place of a version's name: the one that ETL made or confirmed last."""


@dataclass(frozen=True)
class Increment:
    """The parent of an ETL, and the tables with the rows that it adds."""

    parent: Version
    tables: RawTables
    """The tables to read: those with new rows, without the others of theirs, and those that a join reads in full. The views of all other
    tables stay empty, as `analyse` has made them."""


def find_parent(config: Config, name: str) -> Version | None:
    """The version to start from; None if it is the previous one, and none was made from this config, as in a first night. Raises
    DatasetError if a named version is not there, or if it is of another pipeline."""
    if name == PREVIOUS:
        previous = _previous_version(config)
        return open_named_version(config.dataset.path, previous) if previous else None
    parent = open_named_version(config.dataset.path, name)
    if parent.manifest.identity != config.data_identity:
        raise DatasetError(
            f"--from {name}: that version was made from another `source` or `dataset` than this config has; name a version of this config, "
            f"or {PREVIOUS}"
        )
    return parent


def _previous_version(config: Config) -> str:
    """The folder of the version that was made or confirmed last from this config in the present format; empty if there is none."""
    try:
        roots = (root for root, manifest in versions(config.dataset.path) if manifest.identity == config.data_identity)
        return next(roots, "").rpartition("/")[2]
    except OutdatedError:
        return ""


def plan_increment(spark: SparkSession, config: Config, tables: RawTables, parent: Version) -> Increment | None:
    """The increment to a parent, from tables whose views are registered; None if no rows came. Raises NoIncrementError if the parent's rows
    may not be those that an ETL in full would give, or if new rows of the query do not follow from new rows of the tables."""
    sources = parent.sources()
    _check_dataset(config.dataset, parent)
    _check_refused_keys(config, parent)
    _check_same_software(spark, config, tables, sources, parent)
    grown = {name: table for name, old in tables.items() if (table := _table_since(spark, name, old, sources)) is not None}
    if not grown:
        return None
    reads_in_full = check_growth(spark, config.source, frozenset(grown))
    read_tables = {name: grown.get(name, tables[name]) for name in tables if name in grown or name in reads_in_full}
    return Increment(parent, read_tables)


def _table_since(spark: SparkSession, name: str, table: RawTable[Any], sources: Sources) -> RawTable[Any] | None:
    """A table of the new rows; None if there are none."""
    try:
        return table.since(spark, sources.get(name, ()))
    except NoIncrementError as reason:
        raise NoIncrementError(f"source.tables.{name}: {reason}") from None


def _check_dataset(dataset: Dataset, parent: Version) -> None:
    """Raises NoIncrementError for a dataset in which new rows change the place of earlier ones, or whose parent lacks what that takes."""
    split = dataset.split
    if dataset.refit == "always":
        raise NoIncrementError("dataset.refit is always, so that encoders are fitted anew")
    if isinstance(split, FoldSplit) or (isinstance(split, ByFraction) and split.stratify):
        raise NoIncrementError("dataset.split has folds or stratify, so that new rows may move earlier ones to another split")
    if not all(summary.rows_digest for summary in parent.manifest.splits.values()):
        raise NoIncrementError(f"{parent.manifest.version} is of an earlier ETL, which made no digests of sets of rows")
    if any(settings.packs for settings in dataset.encoders.values()):
        if dataset.key:
            raise NoIncrementError("documents are packed into windows, in which none is found again by its key")
    elif dataset.key and not has_keys(parent.filesystem, parent.root, parent.row_groups):
        raise NoIncrementError(f"{parent.manifest.version} has no hashes of its keys")


def _check_refused_keys(config: Config, parent: Version) -> None:
    """Raises NoIncrementError if the parent refused rows after their keys had been compared. Such a row keeps its place before other rows
    with its key, and only those in parts have their keys beside them."""
    manifest, reasons = parent.manifest, (*config.source.expect, repeat_reason(config.dataset.key))
    if not config.dataset.key or manifest.balance is None:
        return
    if rows := manifest.balance.refused - sum(manifest.quarantined.get(reason, 0) for reason in reasons):
        raise NoIncrementError(
            f"an encoder or dataset.split refused {show_count(rows, 'row')} of {manifest.version}, whose keys are not kept; let "
            "source.expect refuse such rows, which comes before keys are compared"
        )


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
    """Raises NoIncrementError if the query gives other columns than it gave the parent, as from files with narrower types."""
    before = {field.name: field.type for field in schema_from_text(parent.manifest.raw_schema)}
    now = {field.name: field.type for field in raw_schema(rows)}
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        raise NoIncrementError(
            f"the query gives {name_list(changed)} with another type than {parent.manifest.version} has: {name} is "
            f"{now.get(name, 'not there')}, and was {before.get(name, 'not there')}; cast it in source.query, or all rows are read"
        )
