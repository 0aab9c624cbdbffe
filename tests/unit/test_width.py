"""Spark's settings follow the number of columns."""

from itertools import pairwise

from pipelines.spark.wide_tables import MOST_GENERATED_COLUMNS, SCAN_CELLS, SCAN_ROWS, column_settings, rows_per_scan_batch


def test_rows_read_at_once_follow_the_cells_of_a_row() -> None:
    least, most = SCAN_ROWS
    columns = [0, 1, 30, 128, 129, 1_000, 3_000, 8_192, 100_000]
    rows = [rows_per_scan_batch(number) for number in columns]
    assert rows[:4] == [most] * 4, "narrow tables keep Spark's default"
    assert all(later < earlier for earlier, later in pairwise(rows[3:8]))
    assert all(number * row_count <= SCAN_CELLS for number, row_count in zip(columns[:8], rows[:8], strict=True))
    assert rows[-1] == least


def test_only_projections_of_very_many_columns_are_interpreted() -> None:
    modes = [
        column_settings(columns)["spark.sql.codegen.factoryMode"] for columns in (30, MOST_GENERATED_COLUMNS, MOST_GENERATED_COLUMNS + 1)
    ]
    assert modes == ["FALLBACK", "FALLBACK", "NO_CODEGEN"]


def test_few_columns_leave_spark_as_it_is() -> None:
    assert column_settings(columns=30) == {
        "spark.sql.parquet.columnarReaderBatchSize": "4096",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.optimizer.collapseProjectAlwaysInline": "false",
        "spark.sql.optimizer.nestedSchemaPruning.enabled": "true",
        "spark.sql.subexpressionElimination.enabled": "true",
    }, "Spark's defaults"
