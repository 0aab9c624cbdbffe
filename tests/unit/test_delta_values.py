"""Values of Delta tables: every version has those that delta-rs itself scans, of any type, and wherever files know them by."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_logs import add_file, commit, deletion_vector, field, read_rows, remove_file, rows_of_many_types, struct_type, table_actions
from deltalake import DeltaTable, write_deltalake

from pipelines.formats.delta.snapshot import open_snapshot

IDS = pa.table({"id": pa.array(range(10), pa.int64())})


def read(path: str | Path, version: int | None = None) -> list[dict[str, Any]]:
    snapshot = open_snapshot(str(path), version)
    rows = read_rows(snapshot)
    assert snapshot.rows == len(rows)
    return sorted(rows, key=repr)


def oracle(path: str | Path, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(pa.table(DeltaTable(str(path), version=version).scan()).to_pylist(), key=repr)


def check_all_versions(path: str | Path) -> None:
    for version in range(DeltaTable(str(path)).version() + 1):
        assert read(path, version) == oracle(path, version), version


def test_every_version_of_a_table_that_is_written_to_has_its_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "a b#é")
    rows = rows_of_many_types()
    write_deltalake(path, rows, partition_by=["city", "day"])
    table = DeltaTable(path)
    table.delete("id < 2")
    table.update(updates={"flag": "true"}, predicate="id = 5")
    evolved = rows.slice(0, 2).append_column("new", pa.array(["x", None]))
    write_deltalake(path, evolved, mode="append", schema_mode="merge")
    source = pa.table({"id": pa.array([5, 100], pa.int64()), "small": pa.array([7, 8], pa.int8())})
    merger = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"small": "s.small"}).when_not_matched_insert({"id": "s.id", "small": "s.small"}).execute()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows.slice(0, 3), mode="overwrite", schema_mode="overwrite", partition_by=["city", "day"])
    check_all_versions(path)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.binary(), pa.int16(), pa.float64(), pa.bool_()])
def test_values_of_partitions_have_their_column_s_type(kind: pa.DataType, tmp_path: Path) -> None:
    moments = [datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(2024, 3, 31, 1, 30)]
    values = {"timestamp": moments, "binary": [b"a\x01/", None, b"%"], "int16": [-1, None, 2], "double": [0.1, None, -1e30]}
    keys = pa.array(values.get(str(kind).partition("[")[0], [True, None, False]), kind)
    write_deltalake(str(tmp_path), pa.table({"id": [1, 2, 3], "key": keys}), partition_by=["key"])
    assert read(tmp_path) == oracle(tmp_path)


def test_rows_of_deletion_vectors_are_left_out(tmp_path: Path) -> None:
    name = "p=a%20b+c=é/part 1.parquet"
    schema = table_actions(field("id", "long"), field("p", "string"), features=["deletionVectors"], partitions=["p"])
    added = add_file(tmp_path, name, IDS, partitionValues={"p": "a b+c=é"})
    commit(tmp_path, 0, [*schema, added, add_file(tmp_path, "b.parquet", IDS, partitionValues={"p": None})])
    masked = {"add": {**added["add"], "deletionVector": deletion_vector([0, 3, 9])}}
    commit(tmp_path, 1, [remove_file(added["add"]["path"]), masked], "DELETE")
    assert len(oracle(tmp_path, 1)) == 17
    check_all_versions(tmp_path)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_by_physical_names_or_numbers(mode: str, tmp_path: Path) -> None:
    """Nested ones too. Delta-rs, which knows no numbers, reads NULLs where only these are right."""

    def inner(number: int) -> dict[str, Any]:
        return struct_type(field("x", "integer", number, f"c{number}"), field("y", "long", number + 1, f"c{number + 1}"))

    def make_struct(number: int) -> pa.DataType:
        fields = [
            make_field("z", pa.int64(), 99),
            make_field(f"c{number + 1}", pa.int64(), number + 1),
            make_field(f"c{number}", pa.int32(), number),
        ]
        return pa.struct(fields)

    def make_field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name if mode == "name" else f"{name}_by_number", kind, metadata={"PARQUET:field_id": str(number)})

    def value(kind: pa.DataType, number: int) -> dict[str, Any]:
        return {kind.field(0).name: -1, kind.field(1).name: number * 10, kind.field(2).name: number}

    fields = [
        field("Id", "long", 1, "c1"),
        field("s", inner(20), 2, "c2"),
        field("l", {"type": "array", "elementType": inner(30), "containsNull": True}, 3, "c3"),
        field("m", {"type": "map", "keyType": "string", "valueType": inner(40), "valueContainsNull": True}, 4, "c4"),
        field("absent", inner(50), 5, "c5"),
        field("p q", "date", 6, "c6"),
    ]
    kinds = [pa.list_(make_struct(30)), pa.int64(), make_struct(20), pa.map_(pa.string(), make_struct(40))]
    schema = pa.schema([make_field(f"c{number}", kind, number) for number, kind in zip((3, 1, 2, 4), kinds, strict=True)])
    columns = [
        [[value(kinds[0].value_type, 1), None, value(kinds[0].value_type, 2)][:number] if number != 1 else None for number in range(6)],
        list(range(6)),
        [None if number == 2 else value(kinds[2], number) for number in range(6)],
        [None if number == 3 else [("k", value(kinds[3].item_type, number)), ("l", None)] for number in range(6)],
    ]
    rows = pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], schema=schema)
    mapping = {"features": ["columnMapping", "deletionVectors"], "delta_columnMapping_mode": mode, "delta_columnMapping_maxColumnId": "99"}
    added = add_file(tmp_path, "xy/a.parquet", rows, partitionValues={"c6": "2020-02-29"}, deletionVector=deletion_vector([0, 4]))
    commit(tmp_path, 0, [*table_actions(*fields, partitions=["p q"], **mapping), added])
    expected = [
        {
            "Id": number,
            "s": None if number == 2 else {"x": number, "y": number * 10},
            "l": None if number == 1 else [{"x": 1, "y": 10}, None, {"x": 2, "y": 20}][:number],
            "m": None if number == 3 else [("k", {"x": number, "y": number * 10}), ("l", None)],
            "absent": None,
            "p q": date(2020, 2, 29),
        }
        for number in (1, 2, 3, 5)
    ]
    assert read(tmp_path) == sorted(expected, key=repr)


def test_files_of_a_shallow_clone_lie_elsewhere(tmp_path: Path) -> None:
    place = f"{tmp_path}/else where/%41é.parquet"
    address = "file://" + place.replace("%", "%25").replace(" ", "%20").replace("é", "%C3%A9")
    path = commit(tmp_path / "clone", 0, [*table_actions(field("id", "long")), add_file(tmp_path, place, IDS, path=address)])
    assert read(path) == IDS.to_pylist()
