"""Which rows of an Iceberg table came after an earlier snapshot, and when that cannot be told."""

from pathlib import Path
from typing import Any

import pytest
from iceberg_tables import HandmadeTable, field
from test_iceberg import ID_AND_NAME, IDS, people, snapshot

from pipelines.data.sources.base import NoIncrementError
from pipelines.formats.iceberg.data_files import cut_files
from pipelines.formats.iceberg.increments import new_files


def new_ids(table: HandmadeTable, earlier: int, **settings: Any) -> list[int | None]:
    current = snapshot(table.path, **settings)
    plan = current.plan(new_files(current, f"iceberg:{table.uuid}@{earlier}"))
    return [row["id"] for task in cut_files(plan.files, 2**20) for batch in current.reader(plan)(task) for row in batch.to_pylist()]


def reason(table: HandmadeTable, earlier: int, **settings: Any) -> str:
    with pytest.raises(NoIncrementError) as error:
        new_ids(table, earlier, **settings)
    return str(error.value)


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path, ID_AND_NAME)


def append(table: HandmadeTable, *ids: int | None) -> tuple[int, dict[str, Any]]:
    file = table.data(people(*ids), IDS)
    return table.commit("append", [file]), file


def test_appends(table: HandmadeTable) -> None:
    snapshots = [append(table, number)[0] for number in range(4)]
    assert [new_ids(table, earlier) for earlier in snapshots] == [[1, 2, 3], [2, 3], [3], []]
    assert new_ids(table, snapshots[0], snapshot=snapshots[2]) == [1, 2]


def test_a_compaction_moves_rows_and_brings_none(table: HandmadeTable) -> None:
    _, file_0 = append(table, 0)
    first, file_1 = append(table, 1)
    _, file_2 = append(table, 2)
    # It joins a new file with older ones.
    compacted = table.commit("replace", [table.data(people(0, 1, 2), IDS)], [file_0, file_1, file_2])
    assert new_ids(table, first) == [2] and new_ids(table, compacted) == []
    append(table, 3)
    assert new_ids(table, first) == [2, 3] and new_ids(table, compacted) == [3]


def test_older_deletes_do_not_touch_new_rows(table: HandmadeTable) -> None:
    append(table, 1, 2)
    deleted = table.commit("delete", [table.equality_deletes(people(1).select(["id"]), {"id": 1})])
    append(table, 1, 5)
    assert new_ids(table, deleted) == [1, 5]


@pytest.mark.parametrize("operation", ["overwrite", "delete"])
def test_other_operations_are_named(table: HandmadeTable, operation: str) -> None:
    first, file = append(table, 1, 2)
    append(table, 3)
    changed = table.commit(operation, [table.data(people(2), IDS)], [file])
    append(table, 4)
    assert reason(table, first) == f"snapshot {changed} is {operation}, so rows may be gone or altered"
    assert new_ids(table, changed) == [4]


def test_what_a_snapshot_calls_itself_is_not_believed(table: HandmadeTable) -> None:
    first, file = append(table, 1, 2)
    table.commit("append", [table.data(people(3), IDS), table.position_deletes({file["file_path"]: [0]})])
    assert "which deletes rows" in reason(table, first)
    second, _ = append(table, 4)
    table.commit("append", [table.data(people(5), IDS)], [file])
    assert "calls itself an append, and removed" in reason(table, second)
    third, _ = append(table, 6)
    table.commit("replace", [table.equality_deletes(people(6).select(["id"]), {"id": 1})])
    assert "which deletes rows" in reason(table, third)


def test_other_tables_and_other_sources(table: HandmadeTable) -> None:
    first, _ = append(table, 1)
    append(table, 2)
    current = snapshot(table.path)
    for checksum, rule in (
        (f"iceberg:{table.uuid.replace(table.uuid[0], 'f' if table.uuid[0] != 'f' else 'e')}@{first}", "of another table"),
        ("sha256:abc", "not made of a snapshot of Iceberg, but of sha256:abc"),
        (f"delta:{table.uuid}@3", "not made of a snapshot of Iceberg"),
    ):
        with pytest.raises(NoIncrementError, match=rule):
            new_files(current, checksum)


def test_snapshots_that_expired(table: HandmadeTable) -> None:
    first, file = append(table, 1)
    second, _ = append(table, 2)
    append(table, 3)
    everything = list(table.snapshots)
    # The earlier snapshot is removed, and all after it are there: the columns are known while there has been one schema only.
    table.snapshots = everything[1:]
    table.write_metadata()
    assert new_ids(table, first) == [2, 3]
    # One between them is removed: the lists of files decide.
    table.snapshots = [everything[0], everything[2]]
    table.write_metadata()
    assert new_ids(table, first) == [2, 3]
    table.snapshots = everything[2:]
    table.write_metadata()
    assert "expired, and so did others after it" in reason(table, first)
    assert new_ids(table, second) == [3]
    table.snapshots = list(everything)
    table.commit("replace", [table.data(people(1), IDS)], [file])
    table.snapshots = [everything[0], table.snapshots[-1]]
    table.write_metadata()
    assert "is no longer in the table: its rows may be gone, or only moved by a compaction" in reason(table, first)


def test_deletes_behind_a_snapshot_that_expired(table: HandmadeTable) -> None:
    first, file = append(table, 1)
    append(table, 2)
    table.commit("delete", [table.position_deletes({file["file_path"]: [0]})])
    del table.snapshots[1]
    table.write_metadata()
    assert f"which deletes rows, came after snapshot {first}" in reason(table, first)


def test_columns_that_changed(table: HandmadeTable) -> None:
    commented, _ = append(table, 0)
    table.evolve((field(1, "id", "long", doc="a number"), ID_AND_NAME[1]))
    first, _ = append(table, 1)
    assert new_ids(table, commented) == [1]
    table.evolve((*ID_AND_NAME, field(3, "more", "long")))
    second, _ = append(table, 2)
    append(table, 3)
    assert "the table's columns changed after snapshot" in reason(table, first)
    assert new_ids(table, second) == [3]
    table.snapshots = table.snapshots[3:]
    table.write_metadata()
    assert "its columns, which may not be those of today" in reason(table, second)


def test_a_branch_that_does_not_descend_from_the_earlier_snapshot(table: HandmadeTable) -> None:
    first, _ = append(table, 1)
    rolled_back, removed = append(table, 2)
    del table.files[-1]
    table.snapshots[-1]["parent-snapshot-id"] = None
    table.commit("append", [table.data(people(3), IDS)])
    table.snapshots[-1]["parent-snapshot-id"] = first
    table.write_metadata()
    assert new_ids(table, first) == [3]
    assert f"{removed['file_path']} is no longer in the table" in reason(table, rolled_back)


def test_a_history_that_cannot_be_read(table: HandmadeTable) -> None:
    first, _ = append(table, 1)
    append(table, 2)
    append(table, 3)
    Path(table.snapshots[1]["manifest-list"]).unlink()
    assert f"the snapshots since {first} cannot be compared" in reason(table, first)
