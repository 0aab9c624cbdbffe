"""Tables of many columns: a column costs a few calls of Java, and the same for each of them, however many there are."""

from pathlib import Path

import py4j.java_gateway
import pytest
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.sql import SparkSession

from pipelines.config import parse
from pipelines.config.source.source import Source
from pipelines.data.features import needs
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.tables import read_tables
from pipelines.etl.plan_checks import plan_warnings, refuse_nondeterminism
from pipelines.etl.splits import split_assignment
from pipelines.etl.splits.split_assignment import raw_schema
from pipelines.etl.statistics import gather as fit
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.session import MOST_GENERATED_COLUMNS, restored_settings, suit_columns


def calls_of_java(spark: SparkSession, columns: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The calls that analysing and fitting make before Spark runs a job."""
    names = [f"c{number}" for number in range(columns)]
    config = parse(
        {
            "name": "wide",
            "source": {"tables": {"raw": {"format": "parquet", "path": "raw"}}},
            "dataset": {"path": "data", "key": ["id"], "features": dict.fromkeys(names, "standardize"), "target": {"y": "binary"}},
            "task": {"kind": "tabular"},
        },
        "test",
    )
    spark.createDataFrame([], ", ".join(f"{name} long" for name in ("id", *names, "y"))).createOrReplaceTempView("wide")
    query = spark.sql("SELECT *, c0 + c1 AS total FROM wide")
    schema, calls = raw_schema(query), 0
    send = py4j.java_gateway.GatewayClient.send_command

    def count_call(self: object, command: str, *arguments: object, **named: object) -> object:
        nonlocal calls
        calls += not command.startswith(MEMORY_COMMAND_NAME)  # Python frees objects of Java at any time
        return send(self, command, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(py4j.java_gateway.GatewayClient, "send_command", count_call)
        plan = query_execution(query).analyzed()
        refuse_nondeterminism("source.query", plan)
        assert list(plan_warnings(plan)) == []
        judged = split_assignment.assign_split(split_assignment.add_identity(query, ("id",)), config.dataset.split)
        handed, compared = fit._select_columns(judged, config.dataset, schema, needs(config.dataset))
    assert compared == names and len(handed.columns) == columns + 5
    return calls


@pytest.mark.full
def test_records_of_very_many_columns_are_read_without_a_compiler(spark: SparkSession, tmp_path: Path) -> None:
    columns = MOST_GENERATED_COLUMNS + 100
    names = [f"c{number}" for number in range(columns)]
    records = [[str(row * columns + number) for number in range(columns)] for row in range(20)]
    records[7][500] = "no number"
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *map(",".join, records)]))
    schema = ", ".join(f"{name} double" for name in names)
    tables = {"wide": {"format": "csv", "path": str(tmp_path / "wide.csv"), "schema": schema, "options": {"header": True}}}
    source = Source.model_validate({"tables": tables})
    with restored_settings():
        tables_read = read_tables(spark, raw_tables(source), suit_columns)
        assert spark.conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN"
        assert (tables_read.parsed, tables_read.handed_on) == ({"wide": 20}, {"wide": 19})
        assert tables_read.malformed is not None
        assert [row.reason for row in tables_read.malformed.collect()] == ["wide: c500 is not double"]
        rows = spark.table("wide").toArrow()
        spark.catalog.clearCache()
    assert rows["c1099"].to_pylist() == [row * columns + 1_099.0 for row in range(20) if row != 7]


def test_a_column_costs_a_few_calls_of_java(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    _, few, many = (calls_of_java(spark, columns, monkeypatch) for columns in (50, 150, 250))
    assert 0 < (many - few) / 100 < 3
