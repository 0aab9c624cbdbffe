"""Tables of Iceberg that are not read, or no longer whole: one line each, with what to do."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_tables import HandmadeTable, field
from test_iceberg import ID_AND_NAME, IDS, ids, people, rows, snapshot

from pipelines.errors import ConfigError, SourceError
from pipelines.formats.iceberg.opening import find_metadata
from pipelines.formats.iceberg.settings import IcebergTable


def make_table(folder: Path, version: int = 2) -> tuple[HandmadeTable, dict[str, Any]]:
    table = HandmadeTable(folder, ID_AND_NAME, version=version)
    file = table.data(people(1, 2, 3), IDS)
    table.commit("append", [file])
    return table, file


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, r"reads a path, or a table of a catalog \(neither is set\)"),
        ({"path": "a", "catalog": {"type": "sql"}, "table": "b.c"}, "both are set"),
        ({"table": "b.c"}, "table is set without catalog"),
        ({"path": "a", "catalog": {"type": "sql"}}, "catalog is set without table"),
        ({"path": "a", "snapshot": 1, "tag": "x"}, "snapshot and tag are set"),
        ({"path": "a", "branch": "main", "tag": "x"}, "branch and tag are set"),
        ({"catalog": {"name": "prod", "s3.secret-access-key": "x"}, "table": "b.c"}, "PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY"),
        ({"catalog": {"uri": "postgresql://me:word@host/db"}, "table": "b.c"}, "PYICEBERG_CATALOG__NAME__URI"),
    ],
)
def test_settings_name_one_table_and_one_snapshot(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        IcebergTable(**settings)


def test_the_newest_metadata_of_a_folder(tmp_path: Path) -> None:
    table, _ = make_table(tmp_path)
    table.commit("append", [table.data(people(4), IDS)])
    metadata = tmp_path / "metadata"
    hint = metadata / "version-hint.text"
    # The hint is written after the file: a file of the next version is newer.
    hint.write_text("1")
    assert find_metadata(str(tmp_path)).endswith("v2.metadata.json") and ids(table) == [1, 2, 3, 4]
    assert find_metadata(f"{tmp_path}/metadata/") == str(metadata / "v2.metadata.json")
    hint.write_text("v1\n")
    assert find_metadata(str(tmp_path)).endswith("v1.metadata.json")
    hint.write_text("9")
    with pytest.raises(SourceError, match="says 9, and there is no such metadata file"):
        find_metadata(str(tmp_path))
    hint.unlink()
    for number in (2, 10):
        shutil.copy(metadata / f"v{number if number == 2 else 1}.metadata.json", metadata / f"000{number:02}-abc.metadata.json")
    assert find_metadata(str(tmp_path)).endswith("00010-abc.metadata.json")
    shutil.copy(metadata / "v1.metadata.json", metadata / "00010-def.metadata.json")
    with pytest.raises(
        SourceError, match=r"2 metadata files of the highest number.*: 00010-abc\.metadata\.json, 00010-def\.metadata\.json;"
    ):
        find_metadata(str(tmp_path))


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
def test_compressed_metadata(tmp_path: Path, ending: str) -> None:
    table, _ = make_table(tmp_path)
    plain = tmp_path / "metadata/v1.metadata.json"
    (tmp_path / f"metadata/v1{ending}").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert ids(table) == [1, 2, 3]


def test_paths_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder; give the folder of an Iceberg table"):
        snapshot(tmp_path / "nothing")
    with pytest.raises(SourceError, match="holds no metadata of an Iceberg table"):
        snapshot(tmp_path)
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(SourceError, match="the version of Iceberg's format is None"):
        snapshot(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SourceError, match=r"x\.json cannot be read: Expecting property name"):
        snapshot(tmp_path / "x.json")
    table = HandmadeTable(tmp_path / "t", ID_AND_NAME)
    table.write_metadata()
    with pytest.raises(SourceError, match="has no snapshot, so no rows"):
        snapshot(table.path)


def test_versions_types_and_encryption_that_are_not_read(tmp_path: Path) -> None:
    table, _ = make_table(tmp_path, version=3)
    for extra, rule in (
        ({"format-version": 4}, "the version of Iceberg's format is 4, and only 1, 2, 3 are"),
        ({"encryption-keys": [{"key-id": "a"}]}, "is encrypted, and Iceberg's encryption is not read"),
        ({"snapshots": [{}]}, "pyiceberg does not read these metadata"),
    ):
        table.extra = extra
        table.write_metadata()
        with pytest.raises(SourceError, match=rule):
            snapshot(table.path)
    table.extra = {}
    inner = {"type": "struct", "fields": [field(4, "v", "variant")]}
    table.evolve(
        (
            *ID_AND_NAME,
            field(3, "s", inner),
            field(5, "w", {"type": "list", "element-id": 6, "element": "interval", "element-required": True}),
        )
    )
    table.write_metadata()
    with pytest.raises(SourceError, match=r"types that pyiceberg \S+ does not know: s\.v \(variant\), w\.element \(interval\)"):
        snapshot(table.path)


@pytest.mark.parametrize(("content", "file_format"), [(0, "ORC"), (0, "AVRO"), (1, "ORC"), (2, "AVRO")])
def test_files_of_other_formats_are_named(tmp_path: Path, content: int, file_format: str) -> None:
    table, file = make_table(tmp_path)
    other = {**file, "content": content, "file_format": file_format, "file_path": f"{tmp_path}/data/x", "equality_ids": [1]}
    table.commit("overwrite", [other])
    kind = "delete" if content else "data"
    with pytest.raises(SourceError, match=rf"data/x is a {kind} file of the format {file_format}, and only Parquet"):
        rows(snapshot(table.path))


def test_files_that_are_missing_or_written_over(tmp_path: Path) -> None:
    table, file = make_table(tmp_path)
    deletes = table.equality_deletes(people(1).select(["id"]), {"id": 1})
    table.commit("delete", [deletes])
    Path(deletes["file_path"]).unlink()
    with pytest.raises(
        SourceError, match=r"data/00002-\S+ is missing, which the table's metadata name.*restore the file, or name another snapshot"
    ):
        rows(snapshot(table.path))
    first = table.snapshots[0]["snapshot-id"]
    pq.write_table(people(1, 2), file["file_path"])
    with pytest.raises(SourceError, match=f"has 2 rows, and its manifest in snapshot {first} says 3: it was written over"):
        rows(snapshot(table.path, snapshot=first))
    Path(file["file_path"]).write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="cannot be read"):
        rows(snapshot(table.path, snapshot=first))
    Path(file["file_path"]).unlink()
    with pytest.raises(SourceError, match="is missing, which"):
        rows(snapshot(table.path, snapshot=first))
    Path(table.snapshots[0]["manifest-list"]).unlink()
    with pytest.raises(SourceError, match=r"snap-\d+.avro is missing, which"):
        rows(snapshot(table.path, snapshot=first))


def test_positions_beyond_the_file_and_damaged_vectors(tmp_path: Path) -> None:
    table, file = make_table(tmp_path, version=3)
    path = file["file_path"]
    table.commit("delete", [table.position_deletes({path: [3]})])
    with pytest.raises(SourceError, match=r"deletes row 3 of \S+, which has 3"):
        rows(snapshot(table.path))
    (vector,) = table.vectors({path: [0]})
    table.commit("delete", [{**vector, "record_count": 2}])
    with pytest.raises(SourceError, match="the deletion vector has 1 positions, and the manifest says 2"):
        rows(snapshot(table.path))
    table.commit("delete", [vector], [vector])
    content = bytearray(Path(vector["file_path"]).read_bytes())
    content[vector["content_offset"] + 20] ^= 1
    Path(vector["file_path"]).write_bytes(content)
    with pytest.raises(SourceError, match="the deletion vector is damaged"):
        rows(snapshot(table.path))
    table.commit("delete", table.vectors({path: [1]}))
    with pytest.raises(SourceError, match="has 2 deletion vectors, and may have one"):
        rows(snapshot(table.path))


def test_equality_deletes_by_what_no_file_has(tmp_path: Path) -> None:
    table, _ = make_table(tmp_path)
    keys = people(1).select(["id"])
    table.commit("delete", [table.equality_deletes(keys, {"id": 1}, equality_ids=[1, 2])])
    with pytest.raises(SourceError, match="lacks name, by which its manifest says that it deletes"):
        rows(snapshot(table.path))
    table.commit("delete", [table.equality_deletes(keys, {"id": 1}, equality_ids=[77])])
    with pytest.raises(SourceError, match="an equality delete is by field 77, which no schema has"):
        rows(snapshot(table.path))


def test_columns_that_sql_takes_for_one(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, (field(1, "id", "long"), field(2, "ID", "long")))
    table.commit("append", [table.data(pa.table({"id": [1], "ID": [2]}), {"id": 1, "ID": 2})])
    with pytest.raises(SourceError, match="columns id and ID are one to Spark"):
        snapshot(table.path)


def test_properties_of_a_table_import_nothing(tmp_path: Path) -> None:
    """They may name a class that opens files, and a table is data."""
    table, _ = make_table(tmp_path)
    table.properties["py-io-impl"] = "antigravity.Antigravity"
    table.write_metadata()
    assert ids(table) == [1, 2, 3]


def test_catalogs_without_the_table(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    from pipelines.formats.iceberg.snapshot import choose_snapshot

    uri = f"sqlite:///{tmp_path}/catalog.db"
    missing = IcebergTable(catalog={"type": "sql", "uri": uri}, table="db.t")
    with pytest.raises(SourceError, match=r"db\.t: the catalog does not give the table: OperationalError: .*no such table"):
        choose_snapshot(missing)
    SqlCatalog("c", uri=uri).create_namespace("db")
    with pytest.raises(SourceError, match=r"the catalog default has no table db\.t; correct"):
        choose_snapshot(missing)
    with pytest.raises(SourceError, match="the catalog does not give the table"):
        choose_snapshot(IcebergTable(catalog={"type": "nonsense"}, table="db.t"))
    assert json.dumps(missing.model_dump(mode="json")) == json.dumps(
        {"format": "iceberg", "catalog": {"type": "sql", "uri": uri}, "table": "db.t"}
    )
