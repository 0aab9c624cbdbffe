"""Delta tables that are written by hand, as other engines write them: deletion vectors, column mapping, and files elsewhere."""

import json
import struct
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.formats.delta.parquet_rows import file_parts
from pipelines.formats.delta.snapshot import Snapshot
from pipelines.formats.delta.table import row_reader

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def field(name: str, kind: Any, number: int | None = None, physical_name: str | None = None) -> dict[str, Any]:
    """A field of a schema; with a number, of a table with column mapping."""
    mapping = {} if number is None else {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical_name or name}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


def struct_type(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def table_actions(
    *fields: dict[str, Any], features: Iterable[str] = (), table_id: str = "", partitions: Sequence[str] = (), **configuration: str
) -> list[dict[str, Any]]:
    """The protocol and the metadata of a first commit."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*features], "writerFeatures": [*features]}
    metadata = {
        "id": table_id or str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(struct_type(*fields)),
        "partitionColumns": list(partitions),
        "configuration": {name.replace("_", "."): value for name, value in configuration.items()},
        "createdTime": 0,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def add_file(folder: Path, name: str, rows: pa.Table, path: str = "", data_change: bool = True, **more: Any) -> dict[str, Any]:
    """Write a file of the table, and return the action that adds it. `path` is what the log calls it, by default its name, encoded."""
    place = Path(name) if name.startswith("/") else folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place)
    action = {
        "path": path or quote(name),
        "partitionValues": {},
        "size": place.stat().st_size,
        "modificationTime": 0,
        "dataChange": data_change,
        "stats": json.dumps({"numRecords": len(rows)}),
    }
    return {"add": {**action, **more}}


def remove_file(path: str, data_change: bool = True, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": data_change, **more}}


def commit(folder: Path, version: int, actions: Iterable[dict[str, Any]], operation: str = "WRITE") -> str:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [{"commitInfo": {"timestamp": version, "operation": operation}}, *actions]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


def deletion_vector(rows: Sequence[int]) -> dict[str, Any]:
    """The deletion vector of these rows, less than 65,536, inside the log: a roaring bitmap in its portable form."""
    bitmap = struct.pack(f"<IIHHI{len(rows)}H", 12346, 1, 0, len(rows) - 1, 16, *rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    return {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}


def z85(data: bytes) -> str:
    data += bytes(-len(data) % 4)
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


def read_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The rows of a version as a task of Spark reads them."""
    reader = row_reader(snapshot, "UTC")
    return [row for parts in file_parts(snapshot.files, 2**20) for batch in reader(parts) for row in batch.to_pylist()]


def rows_of_many_types() -> pa.Table:
    """Twelve rows with a column of each type that writers of Delta know, and two by which a table may be partitioned, `city` and `day`."""
    times = pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(2024, 3, 31, 1, 30)] * 4, pa.timestamp("us"))
    return pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "small": pa.array([1, None, -128] * 4, pa.int8()),
            "ratio": pa.array([0.1, None, float("inf")] * 4, pa.float32()),
            "price": pa.array([Decimal("-1.50"), None, Decimal("99999999.99")] * 4, pa.decimal128(10, 2)),
            "at": times.cast(pa.timestamp("us", tz="UTC")),
            "local": times,
            "day": pa.array([date(1969, 12, 31), None, date(2024, 2, 29)] * 4),
            "raw": pa.array([b"\x00\xff", None, b""] * 4),
            "flag": pa.array([True, None, False] * 4),
            "tags": pa.array([["a", None], None, []] * 4, pa.list_(pa.string())),
            "inner": pa.array([{"x": 1, "y": [1.5]}, None, {"x": None, "y": None}] * 4),
            "map": pa.array([[("k", 1)], None, [("a", None), ("b", 2)]] * 4, pa.map_(pa.string(), pa.int32())),
            "city": pa.array(["São Paulo/é=%", None, "a b"] * 4),
        }
    )
