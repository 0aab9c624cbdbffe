"""PostgreSQL: a table, a view or a query in one snapshot."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.data.sources.base import NoIncrementError, RawTable, Rows, distribute
from pipelines.data.sources.files.listing import File, Range
from pipelines.data.sources.text.parsed import LINE, PROBLEM, RANGE, RECORD
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError
from pipelines.formats.postgres.address import without_login
from pipelines.formats.postgres.fingerprint import Fingerprint, after, checksum_text, combine, fingerprint_parts, from_checksum, subtract
from pipelines.formats.postgres.reading import PartReader, TaskPart
from pipelines.formats.postgres.relation import Relation, open_relation
from pipelines.formats.postgres.server import check_adbc
from pipelines.formats.postgres.settings import PostgresTable
from pipelines.formats.postgres.snapshot import went_back

_MOST_OF_ONE_TASK = 200_000
"""New rows up to which one task reads them, by an index on the watermark; several tasks would search the table each."""


class Postgres(RawTable[PostgresTable]):
    """The snapshot is taken once, and lasts as long as this object: keep it until the rows are read."""

    _relation: Relation | None = None
    _parts: list[Fingerprint] | None = None

    def relation(self, spark: SparkSession) -> Relation:
        """The relation in its snapshot."""
        if self._relation is None:
            check_adbc(f"source.tables.{self.name}")
            self._relation = open_relation(self.name, self.settings, spark.sparkContext.defaultParallelism, self)
        return self._relation

    def conditions(self, spark: SparkSession) -> Sequence[str]:
        """SQL of the rows of each task."""
        return self.relation(spark).conditions

    def fingerprints(self, spark: SparkSession) -> list[Fingerprint]:
        """Of the rows of each task."""
        if self._parts is None:
            self._parts = fingerprint_parts(spark, self.relation(spark), self.conditions(spark))
        return self._parts

    def empty(self, spark: SparkSession) -> DataFrame:
        fields = [T.StructField(column.name, column.kind) for column in self.relation(spark).columns]
        return spark.createDataFrame([], T.StructType(fields))

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        """The fingerprint of the rows; the path says where they are, and what the log's position was."""
        relation, total = self.relation(spark), combine(self.fingerprints(spark))
        position = f" at {relation.snapshot.log_position}" if relation.snapshot.log_position else ""
        place = f"{without_login(self.settings.url)} {self.settings.table or 'query'}{position}"
        return (SourceFile(path=place, bytes=total.bytes, checksum=checksum_text(total, relation.columns)),)

    def rows(self, spark: SparkSession) -> Rows:
        relation, fingerprints = self.relation(spark), self.fingerprints(spark)
        parts = [TaskPart(number, *pair) for number, pair in enumerate(zip(self.conditions(spark), fingerprints, strict=True))]
        origin = [(PROBLEM, T.StringType()), (RECORD, T.StringType()), (RANGE, T.IntegerType()), (LINE, T.LongType())]
        columns = [(column.name, column.kind) for column in relation.columns]
        schema = T.StructType([T.StructField(name, kind) for name, kind in [*columns, *origin]])
        arrow = to_arrow_schema(schema, timezone=str(spark.conf.get("spark.sql.session.timeZone")))
        reader = PartReader(
            relation.snapshot.exported,
            self.settings.place,
            relation.subject,
            relation.columns,
            relation.source,
            arrow,
            not relation.is_stored,
        )
        ranges = tuple(Range(File(self._part_place(part), part.expected.bytes, ""), 0, part.expected.bytes) for part in parts)
        return Rows(distribute(spark, parts, reader, schema), None, ranges)

    def since(self, spark: SparkSession, earlier: Sequence[SourceFile]) -> "Postgres | None":
        relation = self.relation(spark)
        if relation.watermark is None:
            raise NoIncrementError(f"{self.settings.place} has no watermark, a column that says which rows are new")
        before = from_checksum(earlier[0].checksum, relation.columns) if len(earlier) == 1 else None
        if before is None:
            raise NoIncrementError(f"the columns of {self.settings.place}, or their types, are not those of the earlier version")
        if not before.watermark:
            raise NoIncrementError(f"the earlier version does not know a value of the watermark {relation.watermark.name}")
        now = combine(self.fingerprints(spark))
        if combine([now, before]).watermark != now.watermark:
            change = f"{relation.watermark.name} was up to {before.watermark}, and is up to {now.watermark or 'no value'}"
            position, earlier_position = relation.snapshot.log_position, earlier[0].path.rpartition(" at ")[2]
            if went_back(earlier_position, position):
                raise SourceError(
                    f"{self.settings.place}: the server went back in time: its log was at {earlier_position} and is at {position}, "
                    f"{change}; restore the rows, or run once without --from, to take those that there are"
                )
            raise NoIncrementError(f"the newest rows of {self.settings.place} are gone: {change}")
        condition = after(relation.watermark, before.watermark)
        (new,) = fingerprint_parts(spark, relation, [condition])
        older = subtract(now, new)
        if older.rows != before.rows:
            raise NoIncrementError(
                f"{self.settings.place} has {older.rows:,} rows up to {relation.watermark.name} {before.watermark}, and had {before.rows:,}"
            )
        if not older.matches(before):
            raise NoIncrementError(f"rows of {self.settings.place} up to {relation.watermark.name} {before.watermark} have been altered")
        return PostgresIncrement(self, relation, condition, new) if new.rows else None

    def _part_place(self, part: TaskPart) -> str:
        """The part, in the quarantine's source of a row: its number follows."""
        return self.settings.place if part.condition == "true" else f"{self.settings.place} where {part.condition}"


class PostgresIncrement(Postgres):
    """The rows above a watermark, in the snapshot of the table itself, which it keeps."""

    def __init__(self, table: Postgres, relation: Relation, condition: str, new: Fingerprint) -> None:
        super().__init__(table.name, table.settings)
        self._table, self._relation = table, relation
        self._conditions = [condition]
        if new.rows > _MOST_OF_ONE_TASK:
            self._conditions = [f"({part}) AND {condition}" for part in relation.conditions]
        self._parts = [new] if len(self._conditions) == 1 else None

    def conditions(self, spark: SparkSession) -> Sequence[str]:
        return self._conditions
