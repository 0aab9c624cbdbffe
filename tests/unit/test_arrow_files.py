"""Files that know the types of their columns: what Arrow's types become in Spark, and the readers of the formats, without Spark."""

import datetime as dt
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from pipelines.data.sources.arrow_files import ArrowReader, convert_array, spark_kind
from pipelines.data.sources.arrow_table import file_schema
from pipelines.errors import SourceError
from pipelines.formats.duckdb.database import DatabaseReader, check_closed, table_sizes
from pipelines.formats.hdf5.datasets import DatasetReader, table_groups
from pipelines.formats.huggingface_dataset.folders import find_shards
from pipelines.formats.huggingface_dataset.shards import ShardReader
from pipelines.formats.numpy.arrays import ArrayReader
from pipelines.formats.orc.draft import OrcReader

EPOCH, MICROSECOND = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
LARGE, NESTED = pa.large_list(pa.large_string()), pa.large_list(pa.list_(pa.uint8()))


def values(reader: ArrowReader, path: Path | str) -> dict[str, list[Any]]:
    """The columns of a file as Spark gets them."""
    names = reader.schema(str(path)).names
    batches = [pa.record_batch([convert_array(c, name).values for c, name in zip(b.columns, names, strict=True)], names=names)
               for b in reader.batches(str(path), names)]  # fmt: skip
    return pa.Table.from_batches(batches).to_pydict() if batches else {name: [] for name in names}


def types(reader: ArrowReader, path: Path | str) -> str:
    return file_schema(reader, str(path)).simpleString().removeprefix("struct<").removesuffix(">")


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1), None]),
        (pa.array([255], pa.uint8()), pa.int16(), [255]),
        (pa.array([np.float16(0.5)], pa.float16()), pa.float32(), [0.5]),
        (pa.array([-1, 1_001], pa.timestamp("ns")), pa.timestamp("us"), [EPOCH - MICROSECOND, EPOCH + MICROSECOND]),
        (pa.array([0], pa.timestamp("s", "Europe/Berlin")), pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.string(), ["a", None, "b"]),
        (pa.array([[1, 2], None], pa.list_(pa.uint16(), 2)), pa.list_(pa.int32()), [[1, 2], None]),
        (pa.array([[[1]], None, [[2, None]]], NESTED)[1:], pa.list_(pa.list_(pa.int16())), [None, [[2, None]]]),
        (pa.array([{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.uint32(), "b": LARGE})), None, [{"a": 1, "b": ["x"]}, None]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint8())), pa.map_(pa.string(), pa.int16()), [[("k", 1)]]),
        (pa.array([dt.time(1, 2, 3, 4)], pa.time64("us")), pa.string(), ["01:02:03.000004"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([None, None], pa.null()), pa.string(), [None, None]),
    ],
)  # fmt: skip
def test_each_type_is_kept_exactly(array: pa.Array, kind: pa.DataType | None, expected: list[Any]) -> None:
    converted = convert_array(array, "a")
    assert converted.values.to_pylist() == expected and converted.values.type == spark_kind(array.type)
    assert kind is None or converted.values.type == kind


def test_moments_outside_of_the_years_are_faults() -> None:
    days = pa.array([-719_162, 2_932_896, 2_932_897, -719_163, 2**31 - 1, None], pa.int32()).cast(pa.date32())
    converted = convert_array(days, "a")
    assert converted.is_faulty is not None and converted.is_faulty.to_pylist() == [False, False, True, True, True, False]
    assert [str(value) for value in converted.values.to_pylist()] == ["0001-01-01", "9999-12-31", "None", "None", "None", "None"]
    for unit in ("s", "ms", "us"):
        for zone in (None, "UTC"):
            extreme = convert_array(pa.array([2**63 - 1, -(2**63) + 1, 0], pa.int64()).cast(pa.timestamp(unit, zone)), "a")
            assert extreme.is_faulty is not None and extreme.is_faulty.to_pylist() == [True, True, False]


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.month_day_nano_interval(), pa.decimal256(50, 2), pa.list_(pa.duration("s"))])
def test_a_type_that_spark_does_not_have_is_named(kind: pa.DataType) -> None:
    with pytest.raises(SourceError, match=r"a is .*, which Spark does not have; give the table a schema of the other columns"):
        convert_array(pa.nulls(1, kind), "a")


def test_texts_that_are_no_utf_8_are_refused() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xe9"))
    with pytest.raises(SourceError, match="a cannot be read as string"):
        convert_array(broken, "a")


def database(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_table_of_duckdb(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.duckdb",
        """CREATE TABLE kinds AS SELECT i::UTINYINT AS a, i::HUGEINT AS b, 1.5::DECIMAL(9,3) AS c, 'x'::ENUM('x', 'y') AS d, [i, NULL] AS e,
           {'k': i} AS f, TIME '01:02:03' AS g, '101'::BIT AS h, TIMETZ '01:02:03+01' AS i, TIMESTAMPTZ '2026-01-31 00:00+02' AS j,
           UUID '00000000-0000-0000-0000-00000000000a' AS k, [1, 2]::INT[2] AS l, NULL AS m, INTERVAL 2 DAY AS n, 5::UHUGEINT AS o
           FROM range(2) AS r(i)""",
        "CREATE SCHEMA sales; CREATE TABLE sales.orders AS SELECT 1 AS id",
        "CREATE VIEW seen AS SELECT a FROM kinds",
    )  # fmt: skip
    reader = DatabaseReader("Kinds", "")
    assert types(reader, path) == (
        "a:smallint,b:decimal(38,0),c:decimal(9,3),d:string,e:array<bigint>,f:struct<k:bigint>,g:string,h:string,i:string,j:timestamp,"
        "k:string,l:array<int>,m:string,n:string,o:decimal(38,0)"
    )
    row = {name: column[1] for name, column in values(reader, path).items()}
    assert row == {
        "a": 1, "b": Decimal(1), "c": Decimal("1.500"), "d": "x", "e": [1, None], "f": {"k": 1}, "g": "01:02:03.000000", "h": "101",
        "i": "01:02:03+01", "j": dt.datetime(2026, 1, 30, 22, tzinfo=dt.UTC), "k": "00000000-0000-0000-0000-00000000000a", "l": [1, 2],
        "m": None, "n": "2 days", "o": Decimal(5),
    }  # fmt: skip
    assert values(DatabaseReader("sales.orders", ""), path) == {"id": [1]} and values(DatabaseReader("seen", ""), path) == {"a": [0, 1]}
    assert values(DatabaseReader("", "SELECT a + 1 AS b FROM kinds ORDER BY a; -- all"), path) == {"b": [1, 2]}
    assert table_sizes(str(path)) == {"kinds": 2, "sales.orders": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.duckdb"]


@pytest.mark.parametrize(
    ("table", "query", "message"),
    [
        ("kidns", "", "has no table kidns; did you mean kinds?"),
        ("", "SELECT now()", "calls now, so that its rows vary"),
        ("", "SELECT a FROM kinds WHERE random() < 0.5", "calls random"),
        ("", "SELECT * FROM kinds USING SAMPLE 1 ROWS", "calls random"),
        ("", "SELECT * FROM read_text('/etc/hostname')", "a query reads the tables of this database alone"),
        ("", "DELETE FROM kinds", "a query is one SELECT"),
        ("", "SELECT 1 AS a; SELECT 2 AS a", "the query has 2 statements"),
        ("", "SELECT b FROM kinds", "correct the query of the table"),
        ("", "SELECT 340282366920938463463374607431768211455::UHUGEINT AS wide", "Could not cast value"),
        ("", "SELECT [1::HUGEINT] AS wide", "column wide is HUGEINT.., whose whole numbers Spark does not have"),
    ],
)
def test_what_duckdb_does_not_read_is_one_line(tmp_path: Path, table: str, query: str, message: str) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE kinds AS SELECT 1 AS a")
    with pytest.raises(SourceError, match=message) as caught:
        values(DatabaseReader(table, query), path)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_open_or_damaged_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT range AS a FROM range(100000)")
    (tmp_path / "a.duckdb.wal").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"a.duckdb.wal has 1 bytes of changes that are not in the file"):
        check_closed(str(path))
    (tmp_path / "a.duckdb.wal").unlink()
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (content[:middle], b"x" * 10_000, content[:middle] + b"x" * 99 + content[middle + 99 :]):
        path.write_bytes(damaged)
        with pytest.raises(SourceError, match=r"a.duckdb: DuckDB: .*; the file is damaged, encrypted, or of a newer DuckDB"):
            values(DatabaseReader("t", ""), path)


def test_a_database_that_another_program_writes_to_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    code = f"import duckdb; connection = duckdb.connect({str(path)!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(SourceError, match=r"Could not set lock .*; close it in the program that writes to it, or copy it"):
            values(DatabaseReader("t", ""), path)
        writer.communicate(b"\n")
    assert values(DatabaseReader("t", ""), path)


def write_avro(path: Path, fields: list[dict[str, Any]], records: list[dict[str, Any]], **options: Any) -> Path:
    fastavro = pytest.importorskip("fastavro")
    with path.open("wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "Row", "fields": fields}, records, **options)
    return path


def test_records_of_avro(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    from pipelines.formats.avro.records import RecordReader

    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "label", "type": ["null", "string"]}]}
    fields: list[dict[str, Any]] = [
        {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "long"]}, {"name": "c", "type": ["int", "long", "null"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "e", "type": {"type": "int", "logicalType": "date"}},
        {"name": "f", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "g", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "h", "type": {"type": "string", "logicalType": "uuid"}}, {"name": "i", "type": {"type": "array", "items": "double"}},
        {"name": "j", "type": {"type": "map", "values": "long"}}, {"name": "k", "type": point}, {"name": "l", "type": ["null", "Point"]},
        {"name": "m", "type": {"type": "enum", "name": "Mood", "symbols": ["calm", "glad"]}},
        {"name": "n", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "o", "type": {"type": "int", "logicalType": "time-millis"}},
    ]  # fmt: skip
    record = {
        "a": 1, "b": None, "c": 2**40, "d": Decimal("-1.25"), "e": dt.date(2026, 1, 31), "f": dt.datetime(2026, 1, 31, tzinfo=dt.UTC),
        "g": dt.datetime(2026, 1, 31), "h": str(UUID(int=10)), "i": [1.5], "j": {"k": 1}, "k": {"x": 1, "label": None},
        "l": {"x": 2, "label": "é"}, "m": "glad", "n": b"\0\1", "o": dt.time(1, 2, 3),
    }  # fmt: skip
    path = write_avro(tmp_path / "a.avro", fields, [record, {**record, "f": None, "l": None}], codec="deflate")
    assert types(RecordReader(), path) == (
        "a:int,b:bigint,c:bigint,d:decimal(9,2),e:date,f:timestamp,g:timestamp_ntz,h:string,i:array<double>,j:map<string,bigint>,"
        "k:struct<x:int,label:string>,l:struct<x:int,label:string>,m:string,n:binary,o:string"
    )
    rows = values(RecordReader(), path)
    assert {name: column[0] for name, column in rows.items()} == {**record, "j": [("k", 1)], "o": "01:02:03.000"}
    assert rows["f"][1] is rows["l"][1] is None


def test_what_avro_may_hold_and_no_table_does(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    from fastavro import read

    from pipelines.formats.avro.records import RecordReader

    loop = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    for kind, value, message in [
        (["int", "string"], 1, "column a is one of int32, string"), (loop, {"next": None}, "column a is a Node inside of itself"),
    ]:  # fmt: skip
        with pytest.raises(SourceError, match=message):
            RecordReader().schema(str(write_avro(tmp_path / "a.avro", [{"name": "a", "type": kind}], [{"a": value}])))
    late = write_avro(
        tmp_path / "b.avro", [{"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}}], [{"a": 2**62}, {"a": 0}]
    )
    before = dict(read.LOGICAL_READERS)
    (batch,) = RecordReader().batches(str(late), ["a"])
    faults = convert_array(batch["a"], "a").is_faulty
    assert faults is not None and faults.to_pylist() == [True, False] and before == read.LOGICAL_READERS
    content_before = late.read_bytes()
    for content in (content_before[:-5], content_before[:40], b"no Avro at all"):
        late.write_bytes(content)
        with pytest.raises(SourceError, match=r"b.avro cannot be read as Avro \(.*\); it is cut, damaged or of another format"):
            values(RecordReader(), late)


def save(path: Path, write: Callable[..., None], *arrays: Any, **named: Any) -> Path:
    write(path, *arrays, **named)
    return path


def test_arrays_of_numpy(tmp_path: Path) -> None:
    assert values(ArrayReader(), save(tmp_path / "a.npy", np.save, np.arange(3, dtype=">i4"))) == {"value": [0, 1, 2]}
    cube = np.arange(12, dtype=np.uint8).reshape(2, 3, 2, order="F")
    path = save(tmp_path / "b.npy", np.save, np.asfortranarray(cube))
    assert types(ArrayReader(), path) == "value:array<array<smallint>>" and values(ArrayReader(), path) == {"value": cube.tolist()}
    kind = [("id", "<u8"), ("name", "<U4"), ("code", "S3"), ("day", "M8[D]"), ("at", "M8[ns]"), ("point", "f4", (2,)), ("ok", "?")]
    rows = np.array(
        [(2**63, "é", b"ab", "2026-01-31", "NaT", (1, 2), True), (1, "", b"", "NaT", "2026-01-31T01:02:03.000000999", (3, 4), False)], kind
    )
    path = save(tmp_path / "c.npy", np.save, rows)
    assert types(ArrayReader(), path) == "id:decimal(20,0),name:string,code:string,day:date,at:timestamp_ntz,point:array<float>,ok:boolean"
    assert values(ArrayReader(), path) == {
        "id": [Decimal(2**63), Decimal(1)], "name": ["é", ""], "code": ["ab", ""], "day": [dt.date(2026, 1, 31), None],
        "at": [None, dt.datetime(2026, 1, 31, 1, 2, 3)], "point": [[1.0, 2.0], [3.0, 4.0]], "ok": [True, False],
    }  # fmt: skip
    path = save(tmp_path / "d.npz", np.savez, x=np.zeros((2, 2)), y=np.array([np.nan, 1.0], np.float16))
    assert types(ArrayReader(), path) == "x:array<double>,y:float"
    assert [str(value) for value in values(ArrayReader(), path)["y"]] == ["nan", "1.0"]
    assert values(ArrayReader(), save(tmp_path / "e.npy", np.save, np.zeros((0, 3)))) == {"value": []}
    assert values(ArrayReader(), save(tmp_path / "f.npy", np.save, np.zeros((2, 0)))) == {"value": [[], []]}


def test_what_numpy_may_hold_and_no_table_does(tmp_path: Path) -> None:
    for array, message in [
        (np.array([{}], object), "a pickle runs code when it is read, so none is"), (np.array(1.0), "value is a single value without"),
        (np.zeros(2, complex), "complex128, which no column has"), (np.zeros(2, "m8[s]"), "which no column has"),
        (np.zeros(2, np.longdouble), "which no column has"),
    ]:  # fmt: skip
        path = save(tmp_path / "a.npy", lambda place, array: np.save(place, array, allow_pickle=True), array)
        with pytest.raises(SourceError, match=message):
            ArrayReader().schema(str(path))
    path = save(tmp_path / "b.npz", np.savez, x=np.zeros(2), y=np.zeros(3))
    with pytest.raises(SourceError, match="have as many rows as each other, but x has 2, y has 3"):
        values(ArrayReader(), path)
    assert next(iter(ArrayReader().batches(str(path), ["y"]))).num_rows == 3
    content_before = save(tmp_path / "c.npy", np.save, np.zeros(1000))
    for content in (content_before.read_bytes()[:-8], b"", b"x" * 500):
        content_before.write_bytes(content)
        with pytest.raises(SourceError, match=r"c.npy cannot be read as a file of NumPy \(.*\); (it is cut|a pickle)"):
            values(ArrayReader(), content_before)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", b"x" * 100)
    with pytest.raises(SourceError, match=r"d.npz cannot be read as a file of NumPy"):
        values(ArrayReader(), tmp_path / "d.npz")


def test_datasets_of_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("runs/first")
        group["x"] = np.arange(6, dtype=">f4").reshape(3, 2)
        group.create_dataset("n", data=np.arange(3), chunks=(2,), compression="gzip")
        group.create_dataset("s", data=["a", "é", ""], dtype=h5py.string_dtype())
        group.create_dataset("t", data=np.array([b"ab", b"c", b""]), dtype=h5py.string_dtype("ascii", 2))
        file["table"] = np.array([(1, 2.5), (2, 3.5)], [("id", "i4"), ("v", "f8")])
        file["scalar"] = 5
    assert types(DatasetReader("runs/first"), path) == "n:bigint,s:string,t:string,x:array<float>"
    assert values(DatasetReader("/runs/first"), path) == {
        "n": [0, 1, 2], "s": ["a", "é", ""], "t": ["ab", "c", ""], "x": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
    }  # fmt: skip
    assert values(DatasetReader("table"), path) == {"id": [1, 2], "v": [2.5, 3.5]}
    assert values(DatasetReader("runs/first/n"), path) == {"value": [0, 1, 2]}
    assert table_groups(str(path)) == {"runs/first": 3, "": 2}
    with pytest.raises(SourceError, match=r"has no group runs/frist; did you mean runs/first\?"):
        DatasetReader("runs/frist").schema(str(path))
    with pytest.raises(SourceError, match="runs has no datasets; set group to one of first"):
        DatasetReader("runs").schema(str(path))
    with pytest.raises(SourceError, match="scalar is a single value without an axis of rows"):
        DatasetReader("").schema(str(path))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(SourceError, match=r"a.h5 cannot be read as HDF5"):
        DatasetReader("table").schema(str(path))


def test_a_dataset_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"text": ["a", "b", None], "label": [0, 1, 1]}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    train = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": train, "test": train.select([2, 0])}).save_to_disk(tmp_path / "all", num_shards={"train": 2, "test": 1})
    shards = find_shards([str(tmp_path / "all")])
    assert [(shard.file.path.removeprefix(f"{tmp_path}/all/"), shard.split) for shard in shards] == [
        ("train/data-00000-of-00002.arrow", "train"), ("train/data-00001-of-00002.arrow", "train"),
        ("test/data-00000-of-00001.arrow", "test"),
    ]  # fmt: skip
    reader = ShardReader({shard.file.path: shard.split for shard in shards}, "split")
    assert types(reader, shards[0].file.path) == "text:string,label:bigint,split:string"
    assert values(reader, shards[2].file.path) == {"text": [None, "a"], "label": [1, 0], "split": ["test", "test"]}
    train.save_to_disk(tmp_path / "one")
    (shard,) = find_shards([str(tmp_path / "one")])
    assert values(ShardReader({}, "split"), shard.file.path) == rows
    with pytest.raises(SourceError, match="has a column label of its own; set split_column to another name"):
        ShardReader({shard.file.path: "train"}, "label").schema(shard.file.path)
    path = Path(shard.file.path)
    content_before = path.read_bytes()
    path.write_bytes(content_before[:-8])
    with pytest.raises(SourceError, match="is cut: it ends without the mark of its end"):
        values(ShardReader({}, "split"), str(path))
    path.unlink()
    with pytest.raises(SourceError, match=r"one lacks data-00000-of-00001.arrow, which its state.json names; copy the folder again"):
        find_shards([str(tmp_path / "one")])
    (tmp_path / "none").mkdir()
    (tmp_path / "none/x.json").write_text(json.dumps({}))
    with pytest.raises(SourceError, match=r"none has neither state.json nor dataset_dict.json, but x.json"):
        find_shards([str(tmp_path / "none")])


def test_orc_is_read_for_a_draft(tmp_path: Path) -> None:
    orc.write_table(pa.table({"a": [1, None], "b": ["x", "y"]}), tmp_path / "a.orc")
    assert values(OrcReader(), tmp_path / "a.orc") == {"a": [1, None], "b": ["x", "y"]}
    (tmp_path / "a.orc").write_bytes(b"x" * 100)
    with pytest.raises(SourceError, match=r"a.orc cannot be read"):
        OrcReader().schema(str(tmp_path / "a.orc"))
