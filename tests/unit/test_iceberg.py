"""Iceberg's snapshots without Spark: which rows are left, in which columns, and what is refused."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_tables import HandmadeTable, field

from pipelines.errors import SourceError
from pipelines.formats.iceberg.data_files import cut_files
from pipelines.formats.iceberg.settings import IcebergTable
from pipelines.formats.iceberg.snapshot import TableSnapshot, choose_snapshot

ID_AND_NAME = (field(1, "id", "long"), field(2, "name", "string"))
IDS = {"id": 1, "name": 2}


def people(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def snapshot(path: str | Path, **settings: Any) -> TableSnapshot:
    return choose_snapshot(IcebergTable(path=str(path), **settings))


def rows(snapshot: TableSnapshot, task_bytes: int = 2**20) -> list[dict[str, Any]]:
    """The rows as Spark's tasks read them, in the order of files and positions."""
    plan = snapshot.plan()
    reader = snapshot.reader(plan)
    read = [row for task in cut_files(plan.files, task_bytes) for batch in reader(task) for row in batch.to_pylist()]
    assert plan.remaining_records in (None, len(read))
    return read


def ids(table: HandmadeTable, **settings: Any) -> list[int | None]:
    return [row["id"] for row in rows(snapshot(table.path, **settings))]


def test_equality_deletes_apply_to_strictly_older_data(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME)
    table.commit("append", [table.data(people(1, 2, 3), IDS)])
    # An upsert deletes the old row and writes a new one, in one commit.
    table.commit("overwrite", [table.data(people(2, 9), IDS), table.equality_deletes(people(2).select(["id"]), {"id": 1})])
    table.commit("append", [table.data(people(2), IDS)])
    assert ids(table) == [1, 3, 2, 9, 2]
    # A later delete, by the same column, does not make the older one newer.
    table.commit("delete", [table.equality_deletes(people(9).select(["id"]), {"id": 1})])
    assert ids(table) == [1, 3, 2, 2]


def test_position_deletes_apply_to_their_own_commit_and_to_the_file_that_they_name(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME)
    older, other = table.data(people(1, 2, 3), IDS), table.data(people(4, 5, 6), IDS)
    table.commit("append", [older, other])
    newer = table.data(people(7, 8), IDS)
    table.commit("overwrite", [newer, table.position_deletes({newer["file_path"]: [0], older["file_path"]: [2, 0]})])
    assert ids(table) == [2, 4, 5, 6, 8]


def test_keys_are_equal_as_iceberg_compares_them(tmp_path: Path) -> None:
    """NULL equals NULL and NaN equals NaN, a key of two columns is compared as a whole, and 0.0 is not -0.0."""
    fields = (field(1, "id", "long"), field(2, "name", "string"), field(3, "x", "double"))
    table = HandmadeTable(tmp_path, fields)
    values = [(1, "a", 1.0), (1, None, 1.0), (None, "a", math.nan), (None, None, 0.0), (2, "a", -0.0), (2, "b", None)]
    table.commit("append", [table.data(_table(values, "id", "name", "x"), {**IDS, "x": 3})])
    pairs = _table([(1, None), (2, "x"), (7, "a")], "id", "name")
    table.commit("delete", [table.equality_deletes(pairs, IDS)])
    numbers = [pa.table({"x": pa.array(column, pa.float64())}) for column in ([-0.0, math.nan], [None])]
    table.commit("delete", [table.equality_deletes(keys, {"x": 3}) for keys in numbers])
    assert [(row["id"], row["name"], row["x"]) for row in rows(snapshot(table.path))] == [(1, "a", 1.0), (None, None, 0.0)]


def _table(values: list[tuple[Any, ...]], *names: str) -> pa.Table:
    types = {"id": pa.int64(), "name": pa.string(), "x": pa.float64()}
    columns = zip(*values, strict=True)
    return pa.table({name: pa.array(column, types[name]) for name, column in zip(names, columns, strict=True)})


def test_equality_deletes_stay_in_their_partition_unless_their_spec_has_none(tmp_path: Path) -> None:
    spec = [{"source-id": 2, "field-id": 1000, "name": "name", "transform": "identity"}]
    table = HandmadeTable(tmp_path, ID_AND_NAME, spec=spec)
    a, b, null = ({"name": name} for name in ("a", "b", None))
    table.commit("append", [table.data(_table([(1, key["name"]), (2, key["name"])], "id", "name"), IDS, key) for key in (a, b, null)])
    keys = pa.table({"id": pa.array([1], pa.int64())})
    table.commit("delete", [table.equality_deletes(keys, {"id": 1}, a), table.equality_deletes(keys, {"id": 1}, null)])
    assert [(row["id"], row["name"]) for row in rows(snapshot(table.path))] == [(2, "a"), (1, "b"), (2, "b"), (2, None)]
    table.repartition([{"source-id": 2, "field-id": 1000, "name": "name", "transform": "void"}])
    table.commit("delete", [table.equality_deletes(pa.table({"id": pa.array([2], pa.int64())}), {"id": 1}, {"name": None})])
    assert [(row["id"], row["name"]) for row in rows(snapshot(table.path))] == [(1, "b")]


def test_position_deletes_of_a_partition_do_not_reach_another(tmp_path: Path) -> None:
    spec = [{"source-id": 2, "field-id": 1000, "name": "name", "transform": "identity"}]
    table = HandmadeTable(tmp_path, ID_AND_NAME, spec=spec)
    files = [table.data(_table([(1, name), (2, name)], "id", "name"), IDS, {"name": name}) for name in "ab"]
    table.commit("append", files)
    table.commit("delete", [table.position_deletes({file["file_path"]: [0] for file in files}, {"name": "b"})])
    assert [(row["id"], row["name"]) for row in rows(snapshot(table.path))] == [(1, "a"), (2, "a"), (2, "b")]


def test_deletes_of_the_partition_nan(tmp_path: Path) -> None:
    spec = [{"source-id": 3, "field-id": 1000, "name": "x", "transform": "identity"}]
    table = HandmadeTable(tmp_path, (*ID_AND_NAME, field(3, "x", "double")), spec=spec)
    table.partition_types = {"x": '"double"'}
    table.commit("append", [table.data(people(1, 2), IDS, {"x": x}) for x in (math.nan, 0.5)])
    table.commit("delete", [table.equality_deletes(people(1).select(["id"]), {"id": 1}, {"x": math.nan})])
    assert ids(table) == [2, 1, 2]


@pytest.mark.parametrize("rename", [False, True])
def test_keys_of_columns_that_came_went_or_changed_since(tmp_path: Path, rename: bool) -> None:
    table = HandmadeTable(tmp_path, (field(1, "id", "int"), field(2, "name", "string"), field(3, "old", "string")))
    first = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"], "old": ["x", "y", None]})
    table.commit("append", [table.data(first, {**IDS, "old": 3})])
    table.commit("delete", [table.equality_deletes(pa.table({"old": ["x"]}), {"old": 3})])
    # `old` is gone and its name taken by another field; `id` is wider; `new` came, and is NULL in the first file.
    table.evolve((field(1, "number" if rename else "id", "long"), field(4, "old", "string"), field(5, "new", "string")))
    second = pa.table({"id": pa.array([2**40, 3], pa.int64()), "old": ["x", "y"], "new": ["p", "q"]})
    table.commit("append", [table.data(second, {"id": 1, "old": 4, "new": 5})])
    table.commit("delete", [table.equality_deletes(pa.table({"id": pa.array([2**40, 2], pa.int64())}), {"id": 1})])
    read = rows(snapshot(table.path))
    assert [tuple(row.values()) for row in read] == [(3, None, None), (3, "y", "q")]
    assert list(read[0]) == ["number" if rename else "id", "old", "new"]
    table.commit("delete", [table.equality_deletes(pa.table({"new": pa.array([None], pa.string())}), {"new": 5})])
    assert [tuple(row.values()) for row in rows(snapshot(table.path))] == [(3, "y", "q")]


def test_keys_inside_structs(tmp_path: Path) -> None:
    kind = {"type": "struct", "fields": [field(3, "a", "int"), field(4, "b", "string")]}
    table = HandmadeTable(tmp_path, (field(1, "id", "long"), field(2, "s", kind)))
    inner = [pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "3"}), pa.field("b", pa.string(), metadata={"PARQUET:field_id": "4"})]
    values = pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "x"}, None], pa.struct(inner))
    table.commit("append", [table.data(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": values}), {"id": 1, "s": 2})])
    keys = pa.table({"s": pa.array([{"a": 1}, {"a": None}], pa.struct(inner[:1]))})
    table.commit("delete", [table.equality_deletes(keys, {"s": 2}, equality_ids=[3])])
    assert ids(table) == [2]


def test_deletion_vectors_of_one_puffin_file_replace_files_of_positions(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME, version=3)
    files = [table.data(people(*range(start, start + 100)), IDS) for start in (0, 100, 200)]
    table.commit("append", files)
    paths = [file["file_path"] for file in files]
    positions = table.position_deletes({paths[0]: [1, 2]})
    vectors = table.vectors({paths[1]: range(0, 100, 2), paths[0]: [0, 1, 2, 99]})
    table.commit("delete", [positions, *vectors])
    # The file of positions is about rows 1 and 2, which the vector has too; a vector without them would bring the rows back.
    assert ids(table) == [*range(3, 99), *range(101, 200, 2), *range(200, 300)]
    table.commit("delete", table.vectors({paths[2]: range(100)}))
    assert ids(table) == [*range(3, 99), *range(101, 200, 2)]


def test_pieces_of_large_files_have_every_row_once(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME)
    file = table.data(people(*range(1_000)), IDS, row_group_size=70)
    table.commit("append", [file])
    table.commit("delete", [table.position_deletes({file["file_path"]: range(0, 1_000, 3)})])
    table.commit("delete", [table.equality_deletes(pa.table({"id": pa.array(range(0, 1_000, 5), pa.int64())}), {"id": 1})])
    expected = [number for number in range(1_000) if number % 3 and number % 5]
    for task_bytes in (1, 100, 1_000, 10_000, 10**6):
        assert [row["id"] for row in rows(snapshot(table.path), task_bytes)] == expected
    assert len(cut_files(snapshot(table.path).plan().files, 1_000)) > 5


NESTED = (
    field(1, "id", "long"),
    field(2, "items", {"type": "list", "element-id": 5, "element-required": False, "element": {"type": "struct", "fields": [
        field(6, "price", "double"), field(9, "code", "string")]}}),
    field(3, "tags", {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value-required": False, "value": {"type": "struct",
        "fields": [field(10, "n", "long"), field(11, "added", "int")]}}),
    field(4, "plain", {"type": "list", "element-id": 12, "element-required": False, "element": "long"}),
)  # fmt: skip


def test_nested_columns_keep_null_apart_from_empty(tmp_path: Path) -> None:
    def id_field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    items = pa.list_(id_field("item", pa.struct([id_field("code", pa.string(), 9), id_field("cost", pa.float32(), 6)]), 5))
    tags = pa.map_(id_field("key", pa.string(), 7).with_nullable(False), id_field("value", pa.struct([id_field("n", pa.int32(), 10)]), 8))
    plain = pa.large_list(id_field("element", pa.int32(), 12))
    values = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "items": pa.array([[{"code": "a", "cost": 1.5}, None], None, [], [{"code": None, "cost": 2.0}]], items),
            "tags": pa.array([[("k", {"n": 1})], None, [], [("l", None)]], tags),
            "plain": pa.array([[1, None], None, [], [3]], plain),
        }
    )
    table = HandmadeTable(tmp_path, NESTED)
    file = table.data(values, {"id": 1, "items": 2, "tags": 3, "plain": 4})
    table.commit("append", [file])
    expected = [
        {"id": 1, "items": [{"price": 1.5, "code": "a"}, None], "tags": [("k", {"n": 1, "added": None})], "plain": [1, None]},
        {"id": 2, "items": None, "tags": None, "plain": None},
        {"id": 3, "items": [], "tags": [], "plain": []},
        {"id": 4, "items": [{"price": 2.0, "code": None}], "tags": [("l", None)], "plain": [3]},
    ]
    assert rows(snapshot(table.path)) == expected
    table.commit("delete", [table.position_deletes({file["file_path"]: [0, 2]})])
    assert rows(snapshot(table.path)) == [expected[1], expected[3]]


ALL_TYPES: dict[str, tuple[str, pa.DataType, Any, Any]] = {
    "bool": ("boolean", pa.bool_(), True, True),
    "narrow": ("long", pa.int32(), 5, 5),
    "single": ("double", pa.float32(), 0.5, 0.5),
    "price": ("decimal(12, 2)", pa.decimal128(9, 2), Decimal("1.50"), Decimal("1.50")),
    "day": ("date", pa.date32(), date(1969, 12, 31), date(1969, 12, 31)),
    "clock": ("time", pa.time64("us"), 3_661_000_001, "01:01:01.000001"),
    "local": ("timestamp", pa.timestamp("us"), datetime(1960, 1, 1), datetime(1960, 1, 1)),
    "day_as_time": ("timestamp", pa.date32(), date(2020, 1, 2), datetime(2020, 1, 2)),
    "moment": ("timestamptz", pa.timestamp("us", "UTC"), datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)),
    "fine": ("timestamp_ns", pa.timestamp("ns"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    "text": ("string", pa.large_string(), "ü", "ü"),
    "coded": ("string", pa.dictionary(pa.int8(), pa.string()), "a", "a"),
    "uuid": ("uuid", pa.binary(16), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    "fixed": ("fixed[3]", pa.binary(3), b"abc", b"abc"),
    "bytes": ("binary", pa.large_binary(), b"\xff", b"\xff"),
    "unknown": ("unknown", pa.null(), None, None),
}


def test_every_type_and_its_promotions(tmp_path: Path) -> None:
    fields = [field(number, name, kind) for number, (name, (kind, *_)) in enumerate(ALL_TYPES.items(), 1)]
    table = HandmadeTable(tmp_path, fields, version=3)
    columns = {name: pa.array([value, None], kind) for name, (_, kind, value, _) in ALL_TYPES.items()}
    table.commit("append", [table.data(pa.table(columns), {name: number for number, name in enumerate(ALL_TYPES, 1)})])
    read = snapshot(table.path)
    assert rows(read) == [{name: value for name, (*_, value) in ALL_TYPES.items()}, dict.fromkeys(ALL_TYPES)]
    assert "`uuid` string" in read.ddl and "`price` decimal(12, 2)" in read.ddl and "`local` timestamp_ntz" in read.ddl
    assert read.rounded_columns == [("fine", "timestamp_ns")]


@pytest.mark.parametrize(("kind", "stored"), [("int", pa.string()), ("string", pa.int64()), ("float", pa.float64()), ("date", pa.int32())])
def test_values_of_another_type_are_refused(tmp_path: Path, kind: str, stored: pa.DataType) -> None:
    table = HandmadeTable(tmp_path, [field(1, "x", kind)])
    table.commit("append", [table.data(pa.table({"x": pa.array([1], pa.int64()).cast(stored)}), {"x": 1})])
    with pytest.raises(SourceError, match=r"column x \(field 1\) has other values than the table's schema says: \w+ does not become"):
        rows(snapshot(table.path))


def test_columns_that_a_file_lacks_have_the_value_of_its_partition_or_a_default(tmp_path: Path) -> None:
    fields = [
        *(field(1, "id", "long"), field(2, "day", "date"), field(3, "price", "decimal(9, 2)"), field(4, "key", "uuid")),
        field(5, "level", "int", True, **{"initial-default": 7, "write-default": 8}),
        field(6, "since", "date", **{"initial-default": "2020-02-29"}),
    ]
    spec = [
        {"source-id": source, "field-id": 1000 + number, "name": name, "transform": "identity"}
        for number, (source, name) in enumerate(((2, "day"), (3, "price"), (4, "key"), (6, "since")))
    ]
    table = HandmadeTable(tmp_path, fields, version=3, spec=spec)
    table.partition_types = {
        "day": '{"type": "int", "logicalType": "date"}', "since": '{"type": "int", "logicalType": "date"}',
        "price": '{"type": "fixed", "size": 4, "name": "price_f", "logicalType": "decimal", "precision": 9, "scale": 2}',
        "key": '{"type": "fixed", "size": 16, "name": "uuid_fixed", "logicalType": "uuid"}',
    }  # fmt: skip
    values = pa.table({"id": pa.array([1], pa.int64())})
    key = {"day": date(2021, 3, 4), "price": Decimal("1.25"), "key": bytes(range(16)), "since": None}
    table.commit("append", [table.data(values, {"id": 1}, key), table.data(values, {"id": 1}, dict.fromkeys(key))])
    table.repartition([])
    table.commit("append", [table.data(values, {"id": 1})])
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert [tuple(row.values()) for row in rows(snapshot(table.path))] == [
        (1, date(2021, 3, 4), Decimal("1.25"), uuid, 7, None),
        (1, None, None, None, 7, None),
        (1, None, None, None, 7, date(2020, 2, 29)),
    ]


def test_a_required_column_without_default_is_refused_if_a_file_lacks_it(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, [field(1, "id", "long"), field(2, "name", "string", True)])
    table.commit("append", [table.data(people(1).select(["id"]), {"id": 1})])
    with pytest.raises(SourceError, match="has no column name"):
        rows(snapshot(table.path))


def test_files_without_field_ids_need_a_name_mapping(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME)
    table.commit("append", [table.data(people(1, 2).rename_columns(["id", "called"]), None)])
    with pytest.raises(SourceError, match="has no field IDs, and the table no name mapping"):
        rows(snapshot(table.path))
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name", "called"]}]
    table.properties["schema.name-mapping.default"] = json.dumps(mapping)
    table.write_metadata()
    assert rows(snapshot(table.path)) == [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]


def test_old_timestamps_of_96_bits_beyond_the_range_of_nanoseconds(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, [field(1, "t", "timestamp"), field(2, "u", "timestamptz")])
    moment = datetime(1500, 1, 1, 1, 2, 3, 4)
    values = pa.table({name: pa.array([moment], pa.timestamp("us")) for name in "tu"})
    table.commit("append", [table.data(values, {"t": 1, "u": 2}, use_deprecated_int96_timestamps=True)])
    assert rows(snapshot(table.path)) == [{"t": moment, "u": moment.replace(tzinfo=UTC)}]


def test_snapshots_branches_and_tags(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, ID_AND_NAME)
    first = table.commit("append", [table.data(people(1), IDS)])
    second = table.commit("append", [table.data(people(2), IDS)])
    table.evolve((*ID_AND_NAME, field(3, "more", "long")))
    table.refs = {"audit": {"snapshot-id": first, "type": "branch"}, "v1": {"snapshot-id": first, "type": "tag"}}
    table.write_metadata()
    assert ids(table) == [1, 2] and ids(table, branch="main") == [1, 2]
    assert ids(table, snapshot=first) == ids(table, branch="audit") == ids(table, tag="v1") == [1]
    # A schema that came after the snapshot has no part in it, or the same snapshot would have other columns from one day to the next.
    assert list(rows(snapshot(table.path))[0]) == ["id", "name"]
    assert snapshot(table.path).checksum == f"iceberg:{table.uuid}@{second}"
    for settings, rule in (
        ({"snapshot": 5}, "has no snapshot 5: it expired"),
        ({"tag": "main"}, "no tag main; it has v1"),
        ({"branch": "x"}, "no branch x"),
    ):
        with pytest.raises(SourceError, match=rule):
            snapshot(table.path, **settings)


def test_a_copy_of_a_table_is_read_where_it_lies(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "a", ID_AND_NAME, version=3)
    file, other = table.data(people(1, 2), IDS), table.data(people(3, 4), IDS)
    table.commit("append", [file, other])
    table.commit("delete", [*table.vectors({file["file_path"]: [0]}), table.position_deletes({other["file_path"]: [1]})])
    checksum = snapshot(table.path).checksum
    (tmp_path / "a").rename(tmp_path / "b c")
    moved = snapshot(tmp_path / "b c")
    assert [row["id"] for row in rows(moved)] == [2, 3] and moved.checksum == checksum
    assert all(Path(moved.place.resolve(file.path)).is_relative_to(tmp_path / "b c") for file in moved.plan().files)


@pytest.mark.parametrize("location", ["file:{}/a", "file://{}/a", "s3a://bucket/a", "a"])
def test_a_copy_of_a_table_whose_metadata_name_another_store(tmp_path: Path, location: str) -> None:
    table = HandmadeTable(tmp_path / "b", ID_AND_NAME, location=location.format(tmp_path))
    file = table.data(people(1, 2), IDS)
    table.commit("append", [file, table.position_deletes({file["file_path"]: [0]})])
    # Writers of several engines may leave paths in another form than the location.
    table.extra = {"location": table.location.replace("s3a:", "s3:")}
    table.write_metadata()
    assert ids(table) == [2]
