"""Applies the query of a config to the rows of a frame with Spark: for a model that takes the query's columns, because DuckDB is not known
to compute them as Spark does. The text of the query stays as it is, but for a column that numbers the rows."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from pipelines.config import Config
from pipelines.data.rowwise.translate import Rowwise, UntranslatableError, carry_column, columns_in, rowwise
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.source_errors import source_errors, table_errors
from pipelines.data.sources.tables import read_tables
from pipelines.data.versions.manifest import Manifest
from pipelines.errors import ConfigError
from pipelines.etl.refusals import REASON, refuse_unexpected
from pipelines.etl.splits.split_assignment import exact_column, raw_schema
from pipelines.runtime.compat.spark import query_execution
from pipelines.serving.batch.input_tables import applicable_expectations
from pipelines.serving.model.column_casts import fitting_rows
from pipelines.spark.plans import items, kind, nodes
from pipelines.spark.session import restored_settings, session, suit_columns

_ROW = "__row"
_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "Union", "WithCTE", "CTERelationDef"}
"""Spark's operators that make each row from one row."""
_LEFT_OUT = "the query leaves the row out"


@dataclass(frozen=True)
class FrameQuery:
    """A query that makes at most one row from each row of one table."""

    config: Config
    branch: Rowwise
    schemas: dict[str, StructType]
    """Of all tables, by name."""

    @property
    def is_plain(self) -> bool:
        """Whether the query takes columns of the table by their names, and all rows."""
        names = {name: columns_in(value) for name, value in self.branch.columns.items() if value.key == "column"}
        unchanged = {name for name, read in names.items() if {column.lower() for column in read} == {name}}
        return unchanged == self.branch.columns.keys() and not (self.branch.conditions or self.expectations)

    @property
    def expectations(self) -> dict[str, str]:
        """Expectations of rows without a target; none where `source.windows` makes columns later."""
        return {} if self.config.source.windows else applicable_expectations(self.config)

    def apply(self, spark: SparkSession, rows: pa.RecordBatch, names: Collection[str]) -> tuple[pa.Table, pa.Array]:
        """The named columns of the query, of the rows that it keeps, in their order; and for each of all rows the reason why
        it is not among them, or NULL.

        A column that only the target is made of may be missing: it gets a value with which the query keeps rows. Raises SourceError if the
        rows lack another one, or one has another sort of values."""
        selected = [name for name in names if name.lower() in self.branch.columns]
        dataset = self.config.dataset  # no feature reads the columns of the target, and those that are carried along
        other_names = [name for column, settings in {**dataset.target, **dataset.passthrough}.items() for name in settings.inputs(column)]
        hidden = self._columns_read(other_names) - self._columns_read(selected)
        conditions = {column.lower() for condition in self.branch.conditions.values() for column in columns_in(condition)}
        read = (self._columns_read(selected) | conditions) - hidden
        columns = self.schemas[self.branch.table]
        fields = StructType([field for field in columns if field.name.lower() in read])
        with source_errors(self.config.source, "source.query"), _views_restored(spark, self.schemas):
            kept_values = self._values_of_kept_row(spark, hidden & conditions)
            table, unfit = fitting_rows(rows, raw_schema(spark.createDataFrame([], fields)))
            numbered = table.append_column(_ROW, pa.array(range(len(table)), pa.int64()))
            frame = spark.createDataFrame(numbered, StructType([*fields, StructField(_ROW, LongType())]))
            unread = [field for field in columns if field.name.lower() not in read]
            values = {field.name: F.lit(kept_values.get(field.name)).cast(field.dataType) for field in unread}
            frame = frame.withColumns(values).select(*[exact_column(field.name) for field in columns], _ROW)
            self._set_views(spark, {self.branch.table: frame})
            queried = spark.sql(carry_column(self.config.source.sql, _ROW)).withColumn(REASON, F.lit(None).cast("string"))
            queried = refuse_unexpected(queried, self.expectations)
            result = queried.select(_ROW, REASON, *map(exact_column, selected)).toArrow().sort_by(_ROW)
        reasons_by_row = dict(zip(result[_ROW].to_pylist(), result[REASON].to_pylist(), strict=True))
        reasons = pc.coalesce(unfit, pa.array([reasons_by_row.get(row, _LEFT_OUT) for row in range(len(table))], pa.string()))
        return result.filter(pc.is_null(reasons.take(result[_ROW].combine_chunks()))).drop_columns([_ROW, REASON]), reasons

    def check(self, spark: SparkSession) -> None:
        """Raise UntranslatableError if Spark takes rows together for the query."""
        with source_errors(self.config.source, "source.query"), _views_restored(spark, self.schemas):
            self._set_views(spark, {})
            plan = query_execution(spark.sql(self.config.source.sql)).analyzed()
            together = {kind(node) for node in nodes(plan) if node.children().size()} - _ROW_BY_ROW
            if together or list(items(plan.subqueriesAll())):
                raise UntranslatableError(f"{min(together, default='a query inside it')} takes rows together")

    def _set_views(self, spark: SparkSession, frames: dict[str, DataFrame]) -> None:
        """Make views of the tables, each with a number of its rows; empty ones where there is no frame."""
        for name, columns in self.schemas.items():
            numbered = StructType([*columns, StructField(_ROW, LongType())])
            frame = frames[name] if name in frames else spark.createDataFrame([], numbered)
            frame.createOrReplaceTempView(f"`{name}`")

    def _values_of_kept_row(self, spark: SparkSession, columns: set[str]) -> dict[str, object]:
        """Raw values in these columns of a row of the source that the query keeps."""
        names = [field.name for field in self.schemas[self.branch.table] if field.name.lower() in columns]
        if not names:
            return {}
        table = self.branch.table
        read_tables(spark, {table: raw_tables(self.config.source)[table]}, suit_columns)
        rows = spark.table(f"`{table}`").withColumn(_ROW, F.monotonically_increasing_id()).persist()
        try:
            self._set_views(spark, {table: rows})
            first_kept = spark.sql(carry_column(self.config.source.sql, _ROW)).select(_ROW).limit(1)
            row = rows.join(first_kept, _ROW).select(*map(exact_column, names)).first()
        finally:
            rows.unpersist()
        return row.asDict() if row else {}

    def _columns_read(self, names: Iterable[str]) -> set[str]:
        """The table's columns, in lower case, that these columns of the query are made of."""
        expressions = [self.branch.columns[name.lower()] for name in names if name.lower() in self.branch.columns]
        return {column.lower() for expression in expressions for column in columns_in(expression)}


def frame_query(spark: SparkSession, config: Config) -> FrameQuery:
    """The query of a config. Raises ConfigError if it is not row by row."""
    schemas = {}
    for name, table in raw_tables(config.source).items():
        with table_errors(table):
            schemas[name] = table.empty(spark).schema
    try:
        branch, *further = rowwise(config.source.sql, {name: schema.names for name, schema in schemas.items()})
        if any(other.columns != branch.columns for other in further):
            raise UntranslatableError("the parts of its UNION ALL differ")
        query = FrameQuery(config, branch, schemas)
        query.check(spark)
    except UntranslatableError as error:
        raise ConfigError(
            f"source.query: the model could not predict a frame like the one that it is fitted on: {error}; make each row from one row, or "
            "use api.prepare, api.train and api.predict, which take whole tables"
        ) from error
    return query


def check_frame_is_served(config: Config, manifest: Manifest) -> None:
    """Raise ConfigError if a model of this version could not take frames like the one that the version was made from."""
    if manifest.served_query is None:
        with query_session(config) as spark:
            frame_query(spark, config)


@contextmanager
def query_session(config: Config) -> Iterator[SparkSession]:
    """Spark with the settings that rows depend on. A session that was there before has its own again afterwards."""
    with restored_settings():
        yield session(config.name)


@contextmanager
def _views_restored(spark: SparkSession, names: Iterable[str]) -> Iterator[None]:
    """Around a block that makes views of these names: those that the session had are there again afterwards."""
    before = {name: spark.table(f"`{name}`") if spark.catalog.tableExists(f"`{name}`") else None for name in names}
    try:
        yield
    finally:
        for name, view in before.items():
            spark.catalog.dropTempView(name)
            if view is not None:
                view.createOrReplaceTempView(f"`{name}`")
