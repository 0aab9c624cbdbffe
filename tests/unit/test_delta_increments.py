"""Increments of Delta tables: the rows that were appended between two versions, or the commit because of which all are read."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_logs import add_file, commit, deletion_vector, field, read_rows, remove_file, table_actions
from deltalake import DeltaTable, write_deltalake
from tables import raw_table

from pipelines.data.sources.base import NoIncrementError, RawTable

IDS = pa.table({"id": pa.array(range(10), pa.int64())})
NO_SPARK: Any = None
"""In place of a session, which neither identity nor increments of a snapshot need."""


def delta(path: str | Path, **settings: Any) -> RawTable[Any]:
    return raw_table({"format": "delta", "path": str(path), **settings})


def read_added_rows(path: str, earlier: int, later: int | None = None) -> list[dict[str, Any]] | None:
    table = delta(path, **({} if later is None else {"version": later}))
    increment = table.since(NO_SPARK, delta(path, version=earlier).identity(NO_SPARK))
    if increment is None:
        return None
    return sorted(read_rows(increment.snapshot), key=repr)


def find_no_increment(path: str, version: int) -> None:
    """As `read_added_rows` of a version that can no longer be opened."""
    (latest,) = delta(path).identity(NO_SPARK)
    table_id, digest = latest.checksum.partition("@")[0], latest.checksum.rpartition(":")[2]
    delta(path).since(NO_SPARK, (replace(latest, checksum=f"{table_id}@{version}:{digest}"),))


def test_what_was_appended_is_read_although_it_was_compacted(tmp_path: Path) -> None:
    path = str(tmp_path)
    for start in range(0, 40, 10):
        write_deltalake(path, pa.table({"id": list(range(start, start + 10))}), mode="append")
    DeltaTable(path).optimize.compact()
    write_deltalake(path, pa.table({"id": [40]}), mode="append")
    assert DeltaTable(path).version() == 5
    assert read_added_rows(path, 5) is None
    assert read_added_rows(path, 3, later=4) is None
    assert read_added_rows(path, 4) == [{"id": 40}]
    assert read_added_rows(path, 1) == sorted(({"id": number} for number in range(20, 41)), key=repr)
    assert read_added_rows(path, 0, later=2) == [{"id": number} for number in range(10, 30)]
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert read_added_rows(path, 4) == [{"id": 40}]
    with pytest.raises(NoIncrementError, match=r"which commit 2 added, was compacted since, and is gone, as after a VACUUM"):
        read_added_rows(path, 1)


def test_the_reason_for_no_increment_names_the_commit(tmp_path: Path) -> None:
    path = str(tmp_path)
    write_deltalake(path, IDS)
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update(updates={"id": "77"}, predicate="id = 2")
    merger = DeltaTable(path).merge(IDS, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"id": "s.id"}).execute()
    write_deltalake(path, IDS, mode="overwrite")
    write_deltalake(path, pa.table({"id": [1], "new": [1]}), mode="append", schema_mode="merge")
    DeltaTable(path).restore(0)
    for number, operation in enumerate(("DELETE", "UPDATE", "MERGE", "WRITE overwrite"), 1):
        with pytest.raises(NoIncrementError, match=rf"commit {number} of .* is a {operation}, which removes or alters rows"):
            read_added_rows(path, number - 1, later=number)
    with pytest.raises(NoIncrementError, match=r"commit 5 of .* changes the table's schema, since version 4"):
        read_added_rows(path, 4, later=5)
    with pytest.raises(NoIncrementError, match="commit 6 of "):
        read_added_rows(path, 5)
    with pytest.raises(NoIncrementError, match="is older than 5"):
        read_added_rows(path, 5, later=2)
    write_deltalake(f"{path}/other", IDS)
    with pytest.raises(NoIncrementError, match="were of another table"):
        delta(path).since(NO_SPARK, delta(f"{path}/other").identity(NO_SPARK))
    with pytest.raises(NoIncrementError, match="were not those of a Delta table"):
        delta(path).since(NO_SPARK, ())
    DeltaTable(path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(NoIncrementError, match=r"commit 2 of .* is no longer in its log"):
        find_no_increment(path, 1)


def test_a_copy_that_went_its_own_way_is_another_table(tmp_path: Path) -> None:
    """It has the table's ID and the same numbers of versions, as a table has that was restored from a backup and written to again."""
    path, copy = str(tmp_path / "one"), str(tmp_path / "two")
    write_deltalake(path, IDS)
    shutil.copytree(path, copy)
    assert delta(path).identity(NO_SPARK)[0].checksum == delta(copy).identity(NO_SPARK)[0].checksum
    for place, number in ((path, 1), (copy, 2)):
        write_deltalake(place, pa.table({"id": [number]}), mode="append")
    before, now = delta(path).identity(NO_SPARK), delta(copy).identity(NO_SPARK)
    assert before[0].checksum != now[0].checksum
    for _ in range(2):
        with pytest.raises(NoIncrementError, match=r"version 1 of .*two has not the rows that the earlier version 1 of this table had"):
            delta(copy).since(NO_SPARK, before)
        write_deltalake(copy, pa.table({"id": [3]}), mode="append")


def test_deleted_rows_and_columns_are_part_of_the_identity(tmp_path: Path) -> None:
    schema = table_actions(field("id", "long"), features=["deletionVectors"], table_id="one")
    wider = table_actions(field("id", "long"), field("name", "string"), features=["deletionVectors"], table_id="one")
    added = add_file(tmp_path / "a", "a.parquet", IDS)
    deleting = [{"add": {**added["add"], "deletionVector": deletion_vector(rows)}} for rows in ([3], [4])]
    for name, actions in {"a": [*schema, added], "b": [*wider, added], "c": [*schema, deleting[0]], "d": [*schema, deleting[1]]}.items():
        commit(tmp_path / name, 0, actions)
    assert len({delta(tmp_path / name).identity(NO_SPARK)[0].checksum for name in "abcd"}) == 4


def test_new_rows_of_a_commit_that_also_compacts_are_read_once(tmp_path: Path) -> None:
    """And so is a file with deleted rows that a clone or a restored version brings; one that is added again has no increment."""
    schema = table_actions(field("id", "long"), features=["deletionVectors"])
    first, second = add_file(tmp_path, "a.parquet", IDS), add_file(tmp_path, "b.parquet", IDS, deletionVector=deletion_vector([3]))
    commit(tmp_path, 0, [*schema, first])
    both = add_file(tmp_path, "ab.parquet", pa.concat_tables([IDS, IDS]), data_change=False)
    commit(tmp_path, 1, [remove_file("a.parquet", data_change=False), both, second])
    commit(tmp_path, 2, [])
    path = str(tmp_path)
    assert read_added_rows(path, 0) == [{"id": number} for number in range(10) if number != 3]
    assert read_added_rows(path, 1) is None
    commit(tmp_path, 3, [{"add": {**both["add"], "dataChange": True}}])
    with pytest.raises(NoIncrementError, match=r"commit 3 of .* adds ab.parquet again, so its rows may be other ones"):
        read_added_rows(path, 2)
