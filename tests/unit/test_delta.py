"""Delta tables without Spark: the version that settings name, what is refused, and the columns of files that are older than the table."""

import json
import os
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_logs import add_file, commit, deletion_vector, field, read_rows, remove_file, table_actions
from deltalake import DeltaTable, write_deltalake
from drafts import draft_config
from tables import raw_table
from test_init_tables import draft, features, table_settings

from pipelines.config.load import parse, with_absolute_paths
from pipelines.config.source.source import Source
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.delta.draft import sample_delta
from pipelines.formats.delta.snapshot import open_snapshot
from pipelines.formats.delta.table import table_schema
from pipelines.init.draft import Request

IDS = pa.table({"id": pa.array(range(10), pa.int64())})
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


def set_moments(path: Path) -> None:
    """Have each version of a table be committed a day after the one before."""
    for number, file in enumerate(sorted((path / "_delta_log").glob("*.json"))):
        seconds = (MOMENT + timedelta(days=number)).timestamp()
        os.utime(file, (seconds, seconds))


def write_versions(path: Path, versions: int) -> str:
    for number in range(versions):
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    set_moments(path)
    return str(path)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [("2026-11-01T00:00:00Z", 0), ("2026-11-02", 1), ("2026-11-02T23:59:59.999", 1), ("2026-11-02T23:30:00-02:00", 2), ("2026-11-29", 3)],
)
def test_a_timestamp_names_the_version_that_was_the_latest(timestamp: str, version: int, tmp_path: Path) -> None:
    assert open_snapshot(write_versions(tmp_path, 4), timestamp=timestamp).version == version


def test_moments_that_commits_say_themselves_come_before_those_of_files(tmp_path: Path) -> None:
    schema = table_actions(field("id", "long"), delta_enableInCommitTimestamps="true")
    schema[0]["protocol"]["writerFeatures"] = ["inCommitTimestamp"]
    path = commit(tmp_path, 0, schema)
    commit(tmp_path, 1, [])
    for version in (0, 1):
        file = tmp_path / "_delta_log" / f"{version:020d}.json"
        first, *lines = file.read_text().splitlines()
        commit_info = json.loads(first)["commitInfo"] | {"inCommitTimestamp": int(MOMENT.timestamp() * 1_000) + version * 86_400_000}
        file.write_text("\n".join([json.dumps({"commitInfo": commit_info}), *lines]))
    assert [open_snapshot(path, timestamp=f"2026-11-0{day}T12:00:00").version for day in (1, 2)] == [0, 1]
    with pytest.raises(SourceError, match="no version at 2026-10-31"):
        open_snapshot(path, timestamp="2026-10-31")


def test_a_version_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write_versions(tmp_path / "t", 3)
    faults = {
        r"t has no version 7; its versions go up to 2, so name one of 0 to 2": {"version": 7},
        r"no version at 2026-10-31: the earliest that its log still has, 0, is of 2026-11-01T00:00:00.000\+00:00; give a later": {
            "timestamp": "2026-10-31"
        },
        r"timestamp 2999-01-01 is in the future": {"timestamp": "2999-01-01"},
    }
    for message, settings in faults.items():
        with pytest.raises(SourceError, match=message):
            open_snapshot(path, **settings)
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(SourceError, match="no version 1; the earliest that its log still has is 2, so name one of 2 to 2"):
        open_snapshot(path, 1)
    with pytest.raises(SourceError, match="no version at 2026-11-01: the earliest that its log still has, 2, is of 2026-11-03"):
        open_snapshot(path, timestamp="2026-11-01")
    assert len(read_rows(open_snapshot(path))) == 3


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "files").mkdir()
    pq.write_table(IDS, tmp_path / "files" / "a.parquet")
    faults = {
        "nothing": "no such folder; give the folder of a Delta table",
        "empty": "is no Delta table, since it has no _delta_log with commits",
        "files": "is a folder of Parquet files and no Delta table, since it has no _delta_log; set format: parquet",
    }
    for name, message in faults.items():
        with pytest.raises(SourceError, match=message):
            open_snapshot(str(tmp_path / name))
    for name in ("100%25", "a%20b"):
        with pytest.raises(SourceError, match="has % in its name, which delta-rs decodes as in a URL; rename the folder, or name a link"):
            open_snapshot(write_versions(tmp_path / "plain", 1) and str(Path(tmp_path / "plain").rename(tmp_path / name)))


@pytest.mark.parametrize("feature", ["typeWidening", "variantType", "rowsFromTheMoon"])
def test_a_feature_that_is_missing_is_named(feature: str, tmp_path: Path) -> None:
    path = commit(tmp_path, 0, [*table_actions(field("id", "long"), features=[feature]), add_file(tmp_path, "a.parquet", IDS)])
    with pytest.raises(SourceError, match=rf"{feature}(?s:.*)format: spark and source: delta"):
        open_snapshot(path)


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    path = write_versions(tmp_path, 2)
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("{")
    with pytest.raises(SourceError, match="delta-rs cannot read its log"):
        open_snapshot(path)


def test_rows_of_a_file_are_those_that_the_log_counts(tmp_path: Path) -> None:
    path = write_versions(tmp_path, 1)
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(IDS, file)
    with pytest.raises(SourceError, match=r"has 10 rows, and the log of version 0 of .* says 1; restore the file"):
        read_rows(open_snapshot(path))
    file.write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="cannot be read"):
        read_rows(open_snapshot(path))


def test_files_that_are_older_than_the_columns_are_widened(tmp_path: Path) -> None:
    fields = [field("i", "long"), field("d", "double"), field("s", "short"), field("dec", "decimal(20,4)"), field("t", "timestamp_ntz")]
    nested = {
        "type": "array",
        "elementType": {"type": "struct", "fields": [field("x", "long"), field("y", "string")]},
        "containsNull": True,
    }
    old = {
        "i": pa.array([1, None], pa.int32()),
        "d": pa.array([1.5, 2], pa.float32()),
        "s": pa.array([3, 4], pa.int8()),
        "dec": pa.array([1, 2], pa.int32()).cast(pa.decimal128(12, 2)),
        "t": pa.array([date(2020, 2, 29), None]),
        "n": pa.array([[{"x": 1}, None], None], pa.list_(pa.struct([("x", pa.int16())]))),
    }
    schema = table_actions(*fields, field("n", nested), field("new", "date"), features=["timestampNtz"])
    path = commit(tmp_path, 0, [*schema, add_file(tmp_path, "old.parquet", pa.table(old))])
    first, second = read_rows(open_snapshot(path))
    assert first == {
        "i": 1, "d": 1.5, "s": 3, "dec": Decimal("1.0000"), "t": datetime(2020, 2, 29), "n": [{"x": 1, "y": None}, None], "new": None,
    }  # fmt: skip
    assert (second["i"], second["t"], second["n"]) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("long", pa.array(["5"]), "column id is string, and bigint in the table"),
        ("string", pa.array([5]), "column id is int64, and string in the table"),
        ("float", pa.array([0.1]), "column id is double, and float in the table"),
        ("integer", pa.array([2**40]), "cannot be read: Integer value .* not in range"),
        ("date", pa.array([datetime(2020, 1, 1)], pa.timestamp("us")), r"column id is timestamp\[us\], and date in the table"),
        ("decimal(10,2)", pa.array([Decimal("1.234")]), r"column id is decimal128\(4, 3\), and decimal\(10,2\) in the table"),
    ],
)
def test_values_that_only_a_conversion_would_fit_are_refused(kind: str, values: pa.Array, message: str, tmp_path: Path) -> None:
    added = add_file(tmp_path, "a.parquet", pa.table({"id": values}))
    with pytest.raises(SourceError, match=message):
        read_rows(open_snapshot(commit(tmp_path, 0, [*table_actions(field("id", kind)), added])))


def test_timestamps_of_96_bits_do_not_overflow(tmp_path: Path) -> None:
    """As nanoseconds they would, and delta-rs reads 1816."""
    far = pa.table({"t": pa.array([datetime(9999, 12, 31), datetime(2022, 1, 1)], pa.timestamp("us"))})
    added = add_file(tmp_path, "a.parquet", far)
    pq.write_table(far, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    rows = read_rows(open_snapshot(commit(tmp_path, 0, [*table_actions(field("t", "timestamp")), added])))
    assert [row["t"] for row in rows] == [datetime(9999, 12, 31, tzinfo=UTC), datetime(2022, 1, 1, tzinfo=UTC)]


def test_a_partition_s_empty_text_is_null_as_the_protocol_says(tmp_path: Path) -> None:
    schema = table_actions(field("id", "long"), field("p", "string"), partitions=["p"])
    files = [add_file(tmp_path, f"{name}.parquet", IDS.slice(0, 1), partitionValues={"p": name}) for name in ("", " ", "null")]
    rows = read_rows(open_snapshot(commit(tmp_path, 0, [*schema, *files])))
    assert sorted(repr(row["p"]) for row in rows) == ["' '", "'null'", "None"]


def test_a_table_without_files_of_columns_has_its_rows(tmp_path: Path) -> None:
    """Of a partition's value, and of a column that no file has yet."""
    schema = table_actions(field("p", "integer"), field("new", "string"), partitions=["p"])
    path = commit(tmp_path, 0, [*schema, add_file(tmp_path, "a.parquet", IDS, partitionValues={"p": "3"})])
    assert read_rows(open_snapshot(path)) == [{"p": 3, "new": None}] * 10


def test_every_version_of_a_table_with_deletion_vectors_counts_its_rows(tmp_path: Path) -> None:
    schema = table_actions(field("id", "long"), features=["deletionVectors"])
    added = add_file(tmp_path, "a.parquet", IDS)
    commit(tmp_path, 0, [*schema, added])
    vectors = [{}, *({"deletionVector": deletion_vector(rows)} for rows in ([0], [0, 9], [0, 3, 4, 9]))]
    for version, (old, new) in enumerate(pairwise(vectors), 1):
        commit(tmp_path, version, [remove_file("a.parquet", **old), {"add": {**added["add"], **new}}], "DELETE")
    for version in range(4):
        snapshot = open_snapshot(str(tmp_path), version)
        rows = read_rows(snapshot)
        assert snapshot.rows == len(rows) == pa.table(DeltaTable(str(tmp_path), version=version).scan()).num_rows
    assert [row["id"] for row in rows] == [1, 2, 5, 6, 7, 8]
    assert table_schema(snapshot).simpleString() == "struct<id:bigint>"
    commit(tmp_path, 4, [{"add": {**added["add"], "deletionVector": deletion_vector([1])}}])
    with pytest.raises(SourceError, match="the log of version 4 has a file twice"):
        open_snapshot(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"version": 1, "timestamp": "2026-11-01"}, "version is 1 and timestamp 2026-11-01, which may be another one; remove one"),
        ({"version": -1}, r"version: must be at least 0 \(got -1\)"),
        ({"timestamp": "yesterday"}, r"must be a moment such as 2026-11-30T08:00:00Z \(got yesterday\)"),
        ({"path": "s3://key:secret@bucket/table"}, "password or a token"),
        ({"schema": "id int"}, "schema"),
    ],
)
def test_settings_that_are_wrong_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(config_values({"format": "delta", "path": "t", **settings}), "x.yaml")


def config_values(table: dict[str, Any]) -> dict[str, Any]:
    dataset = {"path": "data", "key": ["id"], "features": {"x": "standardize"}, "target": {"y": "binary"}}
    return {"name": "x", "source": {"tables": {"t": table}}, "dataset": dataset, "task": {"kind": "tabular"}}


def test_a_relative_path_starts_where_others_do() -> None:
    config = with_absolute_paths(parse(config_values({"format": "delta", "path": "t", "version": 3}), "x.yaml"), Path("/lake/me"))
    assert config.source.tables["t"].model_dump() == {"format": "delta", "path": "/lake/me/t", "version": 3}
    assert config.data_identity["source"]["tables"]["t"] == {"format": "delta", "version": 3}


def test_without_delta_rs_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.formats.delta.snapshot.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"source.tables.t: Delta Lake needs deltalake.*pip install 'lockstep-pipelines\[delta\]'"):
        raw_table({"format": "delta", "path": "t"}).snapshot  # noqa: B018


def test_settings_are_read_without_delta_rs() -> None:
    Source.model_validate({"tables": {"t": {"format": "delta", "path": "t"}}})
    assert "pipelines.formats.delta.settings" in sys.modules


def write_sales(path: Path, rows: int = 400) -> str:
    random = np.random.default_rng(0)
    sales = {"id": range(rows), "price": random.normal(size=rows), "city": [f"city {row % 5}" for row in range(rows)], "y": [0, 1] * 200}
    write_deltalake(str(path), pa.table({name: list(values) for name, values in sales.items()}), partition_by=["city"])
    DeltaTable(str(path)).delete("id >= 200")
    return str(path)


def test_a_folder_is_drafted_from_its_latest_version_without_rows_that_are_gone(tmp_path: Path) -> None:
    path = write_sales(tmp_path / "sales")
    result = draft(path)
    assert table_settings(result) == {"format": "delta", "path": path}
    assert {"price", "city"} <= features(result).keys() and "200 rows" in result.introduction[0]
    table = sample_delta(path)
    assert table.rows == 200 and table.is_complete


def test_an_address_names_a_version(tmp_path: Path) -> None:
    path = write_sales(tmp_path / "sales")
    for address, settings, rows in ((f"delta:{path}@0", {"version": 0}, 400), (f"delta:{path}", {}, 200)):
        result = draft_config(Request(address, "y", "toy"))
        assert table_settings(result) == {"format": "delta", "path": path, **settings}
        assert f"{rows} rows" in result.introduction[0]
    with pytest.raises(SourceError, match="has no version 9"):
        draft_config(Request(f"delta:{path}@9", "y", "toy"))
