"""Snapshots of Iceberg against pyiceberg's own_paths reading, where it reads them, and against a model of rows, where it does not."""

import random
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_tables import HandmadeTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import DoubleType, LongType, StringType
from test_iceberg import ID_AND_NAME, IDS, rows, snapshot

from pipelines.formats.iceberg.settings import IcebergTable
from pipelines.formats.iceberg.snapshot import choose_snapshot


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("db")
    return catalog


def check_all_snapshots(table: Table) -> int:
    """Compares every snapshot with pyiceberg's reading; returns how many there are."""
    for version in table.metadata.snapshots:
        ours = rows(snapshot(table.metadata_location.removeprefix("file://"), snapshot=version.snapshot_id))
        oracle = table.scan(snapshot_id=version.snapshot_id).to_arrow().to_pylist()
        assert Counter(map(repr, ours)) == Counter(map(repr, oracle))
    return len(table.metadata.snapshots)


@pytest.mark.parametrize("version", ["1", "2"])
def test_appends_deletes_overwrites_and_evolution(catalog: SqlCatalog, version: str) -> None:
    people = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", None], "day": [date(2020, 1, day) for day in (1, 2, 2)]})
    table = catalog.create_table("db.people", people.schema, properties={"format-version": version})
    table.append(people)
    table.delete("id = 2")
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(people)
    with table.update_schema() as schema:
        schema.update_column("id", LongType())
        schema.rename_column("name", "called")
        schema.add_column("weight", DoubleType())
        schema.move_first("weight")
    more = pa.table({"weight": [0.5], "id": pa.array([2**40], pa.int64()), "called": ["c"], "day": [date(2021, 1, 1)]})
    table.append(more)
    with table.update_schema() as schema:
        schema.delete_column("called")
        schema.add_column("called", StringType())
    with table.update_spec() as spec:
        spec.remove_field("day")
        spec.add_identity("id")
    table.append(
        pa.table(
            {"weight": [None], "id": pa.array([7], pa.int64()), "day": [date(2021, 1, 1)], "called": ["new"]},
            schema=table.schema().as_arrow(),
        )
    )
    table.overwrite(
        more.append_column("x", [["y"]]).drop(["called"]).rename_columns(["weight", "id", "day", "called"]), overwrite_filter="id = 3"
    )
    table.delete("day = '2020-01-01'")
    assert check_all_snapshots(table) >= 8


def test_upserts(catalog: SqlCatalog) -> None:
    names = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    table = catalog.create_table("db.t", names.schema)
    table.append(names)
    table.upsert(pa.table({"id": pa.array([2, 3], pa.int64()), "name": ["B", "c"]}), join_cols=["id"])
    assert check_all_snapshots(table) >= 2


def test_files_that_are_added_as_they_are(catalog: SqlCatalog, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    values = pa.table({"id": pa.array([1, 2], pa.int64()), "tags": pa.array([["a"], None], pa.list_(pa.string()))})
    table = catalog.create_table("db.t", values.schema)
    pq.write_table(values, tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    assert check_all_snapshots(table) == 1


def test_catalogs_give_tables_and_their_branches(catalog: SqlCatalog, tmp_path: Path) -> None:
    names = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = catalog.create_table("db.t", names.schema)
    table.append(names)
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").create_tag(first.snapshot_id, "v1").commit()
    table.append(names)
    settings = {"catalog": {"name": "tests", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}, "table": "db.t"}
    assert [len(rows(choose_snapshot(IcebergTable(**settings, **more)))) for more in ({}, {"branch": "audit"}, {"tag": "v1"})] == [4, 2, 2]


class Model:
    """A table of random commits, and the rows that it must have."""

    def __init__(self, folder: Path, version: int, seed: int, has_equality_deletes: bool) -> None:
        self.random = random.Random(seed)
        self.table = HandmadeTable(folder, ID_AND_NAME, version=version)
        self.files: dict[str, list[tuple[int | None, str | None]]] = {}
        self.live: dict[str, set[int]] = {}
        self.sequences: dict[str, int] = {}
        self.has_equality_deletes = has_equality_deletes
        self.vectors: dict[str, dict[str, Any]] = {}
        self.history: dict[int, Counter[tuple[int | None, str | None]]] = {}

    def write(self) -> dict[str, Any]:
        values = [(self.random.choice([None, *range(6)]), self.random.choice([None, "a", "b"])) for _ in range(self.random.randint(1, 12))]
        columns = zip(*values, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, (pa.int64(), pa.string()), strict=True)]
        file = self.table.data(pa.table(arrays, ["id", "name"]), IDS, row_group_size=3)
        self.files[file["file_path"]], self.live[file["file_path"]] = values, set(range(len(values)))
        return file

    def delete_positions(self, paths: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Delete files to add and to remove."""
        chosen = {path: self.random.sample(range(len(self.files[path])), self.random.randint(1, len(self.files[path]))) for path in paths}
        for path, positions in chosen.items():
            self.live[path] -= set(positions)
        if self.table.version < 3:
            return ([self.table.position_deletes(chosen)] if chosen else []), []
        # A vector has all that was deleted by position, and is the only one of its file.
        both = {path: {*positions, *self.vectors.get(path, {}).get("positions", ())} for path, positions in chosen.items()}
        added = self.table.vectors(both)
        removed = [self.vectors[path]["file"] for path in chosen if path in self.vectors]
        for file in added:
            self.vectors[file["referenced_data_file"]] = {"file": file, "positions": both[file["referenced_data_file"]]}
        return added, removed

    def delete_keys(self, own_paths: list[str]) -> list[dict[str, Any]]:
        """An equality delete of some keys, which spares the files of its own commit."""
        by = self.random.choice([["id"], ["name"], ["id", "name"]])
        keys = {
            tuple(self.random.choice([None, 0, 1, 2]) if name == "id" else self.random.choice([None, "a"]) for name in by) for _ in "ab"
        }
        for path, values in self.files.items():
            if path not in own_paths:
                matching = {
                    place
                    for place, row in enumerate(values)
                    if tuple(dict(zip(("id", "name"), row, strict=True))[name] for name in by) in keys
                }
                self.live[path] -= matching
        kinds = {"id": pa.int64(), "name": pa.string()}
        columns = {name: pa.array(values, kinds[name]) for name, values in zip(by, zip(*sorted(keys, key=repr), strict=True), strict=True)}
        return [self.table.equality_deletes(pa.table(columns), {name: IDS[name] for name in by})]

    def commit(self) -> None:
        written = [self.write() for _ in range(self.random.randint(0, 2))]
        own_paths = [file["file_path"] for file in written]
        added, removed = list(written), []
        if self.has_equality_deletes and self.random.random() < 0.5:
            added += self.delete_keys(own_paths)
        if self.files and self.random.random() < 0.6:
            paths = self.random.sample(sorted(self.files), self.random.randint(1, min(3, len(self.files))))
            more, removed_vectors = self.delete_positions(paths)
            added, removed = [*added, *more], [*removed, *removed_vectors]
        if added:
            snapshot_id = self.table.commit("overwrite", added, removed)
            self.history[snapshot_id] = Counter(self.files[path][place] for path, places in self.live.items() for place in places)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("version", "has_equality_deletes"), [(2, True), (3, True), (2, False), (3, False)])
def test_random_commits(tmp_path: Path, version: int, has_equality_deletes: bool, seed: int) -> None:
    model = Model(tmp_path, version, seed, has_equality_deletes)
    for _ in range(8):
        model.commit()
    metadata = tmp_path / f"metadata/v{model.table.metadata_version}.metadata.json"
    for snapshot_id, expected in model.history.items():
        read = rows(snapshot(tmp_path, snapshot=snapshot_id), task_bytes=300 if seed % 2 else 2**20)
        assert Counter((row["id"], row["name"]) for row in read) == expected
        if not has_equality_deletes:
            oracle = StaticTable.from_metadata(str(metadata)).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
            assert Counter((row["id"], row["name"]) for row in oracle) == expected
