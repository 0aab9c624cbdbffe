"""What the tests of polluted tables take for ETL's reading is Spark's."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from polluted.outcomes import read_rows
from polluted.pollutions import all_cases
from pyspark.sql import SparkSession
from tables import read_tables, source

from pipelines.errors import LockstepError
from pipelines.init.tables.find_table import find_table
from pipelines.init.tables.sample import SampledTable

STEP = 97
"""Every so manieth case is read."""


def sample_tables(folder: Path) -> dict[str, tuple[SampledTable, list[tuple[Any, ...]]]]:
    """Drafted tables of some cases, with the rows that are read of them without Spark."""
    tables = {}
    for number, polluted in enumerate(islice(all_cases(), 0, None, STEP)):
        path = folder / f"{number}.csv"
        path.write_bytes(polluted.content)
        try:
            table = find_table(str(path))
        except LockstepError:
            continue
        assert table is not None
        tables[f"t{number}"] = table, read_rows(table, path)
    return tables


@pytest.mark.full
def test_rows_without_spark_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    tables = sample_tables(tmp_path)
    read_tables(spark, source(**{name: dict(table.settings) for name, (table, _) in tables.items()}))
    for name, (table, rows) in tables.items():
        columns = [(column.typed.sql or "{}").format(f"`{column.name}`") for column in table.columns]
        selected = name if table.select == "*" else f"({table.select.format(name)})"
        got = [tuple(row) for row in spark.sql(f"SELECT {', '.join(columns)} FROM {selected}").collect()]
        assert sorted(map(repr, got)) == sorted(map(repr, rows)), (name, table.settings)
