"""Gets the raw rows of the test split of a dataset version, as ETL judged them, from its sources."""

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import read_tables
from pipelines.etl.identity import version_name
from pipelines.etl.judge import judge
from pipelines.etl.quality import accepted_rows
from pipelines.etl.query import analyse, run_query
from pipelines.etl.read import check_unchanged, collect_sources
from pipelines.etl.splits.splits import INTERNAL, ROW, SPLIT, TEST, content_order
from pipelines.serving.registry.gates import Gate, equal
from pipelines.spark.wide_tables import suit_columns


def test_rows(spark: SparkSession, config: Config, version: str, max_rows: int) -> tuple[pa.Table, Gate]:
    """The query's columns of at most `max_rows` rows of the test split, always the same rows in the same order, and the gate that the
    sources are those of the `version`. If they are not, there are no rows.

    Raises SourceError if a source changed during reading.
    """
    tables = raw_tables(config.source)
    before = collect_sources(config.source, tables, lambda table: table.state())
    is_deterministic = not analyse(spark, config, tables)
    identities = collect_sources(config.source, tables, lambda table: table.identity(spark))
    gate = equal("the version that the sources, by their checksums, would make", version_name(config, tables, identities, spark), version)
    if not gate.holds:
        return pa.table({}), gate
    with source_errors(config.source):
        read_tables(spark, tables, suit_columns)
        rows = accepted_rows(judge(run_query(spark, config, is_deterministic), config, is_deterministic)).where(f"{SPLIT} = {TEST}")
        table = rows.orderBy(ROW, *content_order(rows)).limit(max_rows).drop(*INTERNAL).toArrow()
    check_unchanged(tables, before)
    return table, gate
