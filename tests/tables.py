"""Raw tables of a few rows, and what became of them."""

import struct
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.config.source.source import Source
from pipelines.data.sources import tables
from pipelines.data.sources.base import RawTable, raw_tables
from pipelines.data.sources.tables import Tables
from pipelines.spark.session import suit_columns


def source(query: str = "SELECT 1", **tables: dict[str, Any]) -> Source:
    return Source.model_validate({"tables": tables, "query": query})


def raw_table(settings: dict[str, Any]) -> RawTable[Any]:
    return raw_tables(source(t=settings))["t"]


def read_tables(spark: SparkSession, settings: Source) -> Tables:
    return tables.read_tables(spark, raw_tables(settings), suit_columns)


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def view_rows(spark: SparkSession, view: str = "t") -> list[tuple]:
    return sorted((tuple(row) for row in spark.table(view).collect()), key=repr)


def idx(code: int, shape: tuple[int, ...], values: bytes) -> bytes:
    """The content of an IDX file."""
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + values
