"""Cells of Excel and SQLite in the declared types: what a column takes, and what makes its row malformed."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)  # fmt: skip

from pipelines.data.sources.cell_files import CellFault
from pipelines.data.sources.cell_table import convert_column, to_record_batch
from pipelines.data.sources.text.parsed import LINE, PROBLEM, RANGE, RECORD

KINDS: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        *(ByteType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(5, 2), DecimalType(3, 0), BooleanType()),
        *(StringType(), BinaryType(), DateType(), TimestampType(), TimestampNTZType()),
    )
}


def column(ddl: str) -> StructField:
    return StructField("a", KINDS[ddl.removesuffix(" NOT NULL")], nullable=not ddl.endswith("NOT NULL"))


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("int", 7, 7),
        ("int", 7.0, 7),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("double", 7, 7.0),
        ("float", 0.1, 0.1),
        ("decimal(5,2)", 0.30000000000000004, Decimal("0.30")),
        ("decimal(5,2)", "12.345", Decimal("12.35")),
        ("decimal(3,0)", -999.4, Decimal(-999)),
        ("decimal(5,2)", "0" * 5_000 + "1." + "1" * 5_000, Decimal("1.11")),
        ("double", 2**1023, 2.0**1023),
        ("boolean", True, True),
        ("boolean", 0, False),
        ("boolean", 1.0, True),
        ("string", "007", "007"),
        ("string", 7.0, "7"),
        ("string", 2**60, str(2**60)),
        ("binary", b"\x00", b"\x00"),
        ("date", datetime(2017, 1, 2), date(2017, 1, 2)),
        ("date", "2017-01-02", date(2017, 1, 2)),
        ("timestamp", date(2017, 1, 2), datetime(2017, 1, 2, tzinfo=UTC)),
        ("timestamp", "2017-01-02 03:04:05.5", datetime(2017, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)),
        ("timestamp", "2017-01-02T03:04:05+02:00", datetime(2017, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2017, 1, 2, 3), datetime(2017, 1, 2, 3)),
        ("string", "", None),
        ("int", "", None),
        ("int", None, None),
    ],
)
def test_a_cell_is_in_the_type_of_its_column(ddl: str, value: Any, expected: Any) -> None:
    assert convert_column([value], column(ddl)) == ([expected], {})


@pytest.mark.parametrize(
    ("ddl", "value", "sort"),
    [
        ("int", "7", "text"),
        ("int", 7.5, "a number with a fraction"),
        ("int", True, "true or false"),
        ("tinyint", 128, "out of range"),
        ("int", 2**31, "out of range"),
        ("bigint", 1e19, "out of range"),
        ("int", float("inf"), "no finite number"),
        ("int", datetime(2017, 1, 2), "a time"),
        ("double", "1.5", "text"),
        ("double", float("nan"), "no finite number"),
        ("float", 1e39, "out of range"),
        ("decimal(5,2)", 1000, "out of range"),
        ("decimal(5,2)", 999.995, "out of range"),
        ("decimal(5,2)", "1e2", "text"),
        ("decimal(5,2)", "1" * 1_001, "out of range"),
        ("decimal(5,2)", "1" * 5_000, "out of range"),
        ("decimal(5,2)", 10**4_000, "out of range"),
        ("bigint", 10**4_000, "out of range"),
        ("double", 10**400, "out of range"),
        ("double", -(2**1024), "out of range"),
        ("boolean", 2, "a number"),
        ("boolean", "true", "text"),
        ("string", 7.5, "a number"),
        ("string", True, "true or false"),
        ("string", b"x", "bytes"),
        ("string", date(2017, 1, 2), "a date"),
        ("string", time(3), "a time of day or a duration"),
        ("string", CellFault("the error #N/A"), "the error #N/A"),
        ("int", CellFault("the error #DIV/0!"), "the error #DIV/0!"),
        ("binary", "x", "text"),
        ("date", 42737, "a number"),
        ("date", "2.1.2017", "text"),
        ("date", datetime(2017, 1, 2, 3), "a time"),
        ("timestamp", timedelta(hours=30), "a time of day or a duration"),
        ("timestamp", "now", "text"),
        ("timestamp", "2017-13-01", "text"),
        ("timestamp", "9999-12-31T23:59:59-01:00", "out of range"),
        ("timestamp", "0001-01-01T00:00:00+01:00", "out of range"),
        ("timestamp_ntz", "2017-01-02T03:04:05+02:00", "a time with a zone"),
    ],
)
def test_a_cell_of_another_sort_is_a_fault_without_its_value(ddl: str, value: Any, sort: str) -> None:
    kind = column(ddl).dataType.simpleString()
    assert convert_column([value], column(ddl)) == ([None], {0: f"a is {sort}, not {kind}"})


def test_null_where_there_may_be_none() -> None:
    faults = convert_column([None, "x", ""], column("string NOT NULL"))[1]
    assert faults == dict.fromkeys((0, 2), "NULL in a, which is NOT NULL")
    assert convert_column([True], column("int NOT NULL"))[1] == {0: "a is true or false, not int"}


def test_a_malformed_row_has_its_first_fault_its_record_and_its_line() -> None:
    columns = StructType([StructField("a", IntegerType()), StructField("b", DateType()), StructField("c", BinaryType())])
    kinds = {PROBLEM: StringType(), RECORD: StringType(), RANGE: IntegerType(), LINE: LongType()}
    schema = to_arrow_schema(StructType([*columns, *(StructField(name, kind) for name, kind in kinds.items())]), timezone="UTC")
    rows = [(1, date(2017, 1, 2), b"xy"), ("1", 5, b"xy"), (None, None, None)]
    first, second, third = to_record_batch(rows, [2, 3, 4], columns, schema, 7, "").to_pylist()
    assert (first["a"], first["b"], first["c"]) == (1, date(2017, 1, 2), b"xy")
    assert (first[PROBLEM], first[RECORD], first[LINE]) == (None, None, None)
    assert (second[PROBLEM], second[LINE], second[RANGE]) == ("a is text, not int", 3, 7)
    assert json.loads(second[RECORD]) == ["1", 5, "2 bytes"]
    assert third[PROBLEM] is None and third["a"] is None
