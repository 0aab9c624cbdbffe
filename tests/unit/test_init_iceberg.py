"""`lockstep init` for Iceberg: the columns and rows of the current snapshot, without deleted rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from iceberg_tables import HandmadeTable, field
from test_init_tables import draft, features, table_settings

from pipelines.errors import SourceError
from pipelines.formats.iceberg.draft import sample_iceberg

ROWS = 400


def make_table(folder: Path) -> HandmadeTable:
    table = HandmadeTable(
        folder,
        (field(1, "id", "long"), field(2, "Unit Price", "decimal(9, 2)"), field(3, "y", "int"), field(4, "seen", "timestamp_ns")),
        version=3,
    )
    random = np.random.default_rng(0)
    columns = {
        "id": pa.array(range(ROWS), pa.int64()),
        "Unit Price": pa.array(random.integers(0, 5_000, ROWS).tolist(), pa.decimal128(9, 2)),
        "y": pa.array(random.integers(0, 2, ROWS), pa.int32()),
        "seen": pa.array(random.integers(0, 10**18, ROWS), pa.timestamp("ns")),
    }
    file = table.data(pa.table(columns), {"id": 1, "Unit Price": 2, "y": 3, "seen": 4})
    table.commit("append", [file])
    table.commit("delete", table.vectors({file["file_path"]: range(0, ROWS, 4)}))
    return table


def test_a_folder_and_a_metadata_file_are_drafted(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    for path in (table.path, f"{table.path}/metadata/v2.metadata.json"):
        result = draft(path)
        assert table_settings(result) == {"format": "iceberg", "path": path}
        assert "Unit Price" in features(result)
        assert "300 rows of 4 columns" in result.introduction[0]
        assert "seen: nanoseconds, which are rounded down to microseconds" in result.assumptions


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, (field(1, "id", "long"),))
    file = table.data(pa.table({"id": pa.array([1], pa.int64())}), {"id": 1})
    table.commit("append", [file])
    table.commit("delete", [], [file])
    with pytest.raises(SourceError, match="has no rows in its current snapshot"):
        sample_iceberg(str(tmp_path))
