"""Spark's settings follow the number of columns."""

from itertools import pairwise

import pytest

from pipelines.spark.session import (
    CACHE_CELLS,
    CACHE_ROWS,
    MOST_GENERATED_COLUMNS,
    SCAN_CELLS,
    SCAN_ROWS,
    column_settings,
    rows_per_batch,
)


@pytest.mark.parametrize(("cells", "limits"), [(SCAN_CELLS, SCAN_ROWS), (CACHE_CELLS, CACHE_ROWS)])
def test_rows_of_a_batch_follow_the_cells_of_a_row(cells: int, limits: tuple[int, int]) -> None:
    least, most = limits
    few = [0, 1, 30, cells // most]
    assert [rows_per_batch(columns, cells, limits) for columns in few] == [most] * 4, "narrow tables keep Spark's default"
    columns = [cells // most, 1_000, 3_000, 8_192]
    rows = [rows_per_batch(number, cells, limits) for number in columns]
    assert all(later < earlier for earlier, later in pairwise(rows))
    assert all(number * row_count <= cells for number, row_count in zip(columns, rows, strict=True))
    assert rows_per_batch(100_000, cells, limits) == least


def test_only_projections_of_very_many_columns_are_interpreted() -> None:
    modes = [
        column_settings(columns)["spark.sql.codegen.factoryMode"] for columns in (30, MOST_GENERATED_COLUMNS, MOST_GENERATED_COLUMNS + 1)
    ]
    assert modes == ["FALLBACK", "FALLBACK", "NO_CODEGEN"]


def test_few_columns_leave_spark_as_it_is() -> None:
    assert column_settings(columns=30) == {
        "spark.sql.parquet.columnarReaderBatchSize": "4096",
        "spark.sql.inMemoryColumnarStorage.batchSize": "10000",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.optimizer.collapseProjectAlwaysInline": "false",
        "spark.sql.optimizer.nestedSchemaPruning.enabled": "true",
        "spark.sql.subexpressionElimination.enabled": "true",
    }, "Spark's defaults"
