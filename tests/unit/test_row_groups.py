"""Row groups and source files in columns are those of a list, and have its digests."""

import json
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from versions import write_version

from pipelines.data.loader import Loader, Order
from pipelines.data.versions import row_groups
from pipelines.data.versions.checked_tables import read_batches, write_table
from pipelines.data.versions.commit import Report, commit, merge_reports, row_groups_path
from pipelines.data.versions.folds import select_row_groups
from pipelines.data.versions.manifest import SPLITS, SplitSummary, content_digest, split_summaries
from pipelines.data.versions.parts import ROW_GROUPS, RowGroup
from pipelines.data.versions.plain import identity_encoders
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.row_groups import collect_row_groups, join_row_groups
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.source_files import collect_files, read_sources, source_summaries, write_sources
from pipelines.data.versions.storage import checksum, locate, part_path, seal, unseal
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import CorruptError

ENCODERS = identity_encoders((TensorColumn("x", "float32", (), "feature"), TensorColumn("y", "int64", (), "target")))
LOCAL, _ = locate("/")


def some_groups(count: int, seed: int = 0, group_count: int = 3) -> list[RowGroup]:
    """Row groups of several splits and parts, in the order of an index."""
    chance = random.Random(seed)
    return [
        RowGroup(
            split=SPLITS[number * 3 // count],
            part=number // group_count,
            index=number % group_count,
            file=f"data-a/split={SPLITS[number * 3 // count]}/part-{number // group_count:05}-é.parquet",
            rows=chance.randrange(1, 2**40),
            offset=chance.randrange(2**50),
            bytes=chance.randrange(2**40),
            checksum=f"{chance.getrandbits(128):032x}",
            footer_offset=number // group_count * 7,
            footer_checksum=f"{number // group_count:032x}",
            digest=f"{chance.getrandbits(256):064x}",
        )
        for number in range(count)
    ]


def shuffle(groups: list[RowGroup]) -> list[RowGroup]:
    return random.Random(1).sample(groups, len(groups))


def plain(groups: list[RowGroup]) -> list[RowGroup]:
    """As of a folder of plain Parquet: without checksums, and with digests of files."""
    return [replace(group, checksum="", digest=f"{group.part:064x}") for group in groups]


def odd(groups: list[RowGroup]) -> list[RowGroup]:
    """Some digests are no numbers, or longer, or in capitals."""
    odd_texts = ("", "ff", "F" * 64, "é" * 32, "0" * 63)
    texts = [odd_texts[number % 5] if number > len(groups) // 2 else group.digest for number, group in enumerate(groups)]
    return [replace(group, digest=text, checksum=text[:32]) for group, text in zip(groups, texts, strict=True)]


def twice(groups: list[RowGroup]) -> list[RowGroup]:
    return [*groups, *groups]


ORDERS: list[Callable[[list[RowGroup]], list[RowGroup]]] = [list, shuffle, plain, odd, twice]


def old_digest(groups: Sequence[RowGroup]) -> str:
    """The formula of the digest over single row groups."""
    digest = sha256()
    for name, fitted in ENCODERS.items():
        content = [name, fitted.column.to_values(), list(fitted.inputs), fitted.feature, fitted.state]
        digest.update(json.dumps(content, sort_keys=True).encode())
    for group in sorted(groups, key=lambda group: (SPLITS.index(group.split), group.part, group.index)):
        digest.update(f"{group.split} {group.part} {group.index} {group.rows} {group.digest}\n".encode())
    return digest.hexdigest()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [0, 1, 10, 1_000])
def test_row_groups_in_columns_are_those_of_the_list(
    order: Callable[[list[RowGroup]], list[RowGroup]], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "BATCH_ROWS", 64)
    groups = order(some_groups(count))
    columns = collect_row_groups(groups)
    assert len(columns) == len(groups) and list(columns) == groups
    assert [columns[number] for number in range(-len(groups), len(groups))] == twice(groups)
    assert list(columns[1:5]) == groups[1:5] and list(columns[::-3]) == groups[::-3]
    assert columns.rows.tolist() == columns.stored_rows.tolist() == [group.rows for group in groups] and columns.rows.dtype == np.int64
    assert columns.files == list(dict.fromkeys(group.file for group in groups)) or order is shuffle
    assert list(join_row_groups([columns[:7], columns[7:]])) == groups
    with pytest.raises(IndexError):
        columns[len(groups)]
    for split in SPLITS:
        expected = sorted((group for group in groups if group.split == split), key=lambda group: (group.part, group.index))
        selected = columns.select_split(split)
        assert list(selected) == expected and [selected[number] for number in range(len(selected))] == expected
        assert list(pickle.loads(pickle.dumps(selected))) == expected


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [0, 5, 700])
def test_p6_digest_and_summaries_of_columns_are_those_of_single_row_groups(
    order: Callable[[list[RowGroup]], list[RowGroup]], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "BATCH_ROWS", 100)
    groups = order(some_groups(count))
    assert content_digest(ENCODERS, groups) == content_digest(ENCODERS, collect_row_groups(groups)) == old_digest(groups)
    for split, summary in split_summaries(ENCODERS, groups).items():
        in_split = [group for group in groups if group.split == split]
        rows, parts = sum(group.rows for group in in_split), len({group.part for group in in_split})
        size = sum(group.bytes for group in in_split)
        assert summary == SplitSummary(rows=rows, parts=parts, row_groups=len(in_split), bytes=size, decoded_bytes=12 * rows)


@pytest.fixture
def version(tmp_path: Path) -> Version:
    parts = [{"label": np.arange(number * 500, (number + 1) * 500), "fold": np.tile(np.uint8([1, 2, 3]), 167)[:500]} for number in range(4)]
    return write_version(tmp_path / "version", {"train": parts, "test": parts[:1]}, row_group_bytes=2**10)


def test_p6_an_index_that_was_written_at_once_and_in_any_order_opens_alike(version: Version) -> None:
    path, manifest = Path(row_groups_path(version.root, "a")), Path(version.root) / "manifest.json"
    table, expected = pq.read_table(path), {split: list(version.split_row_groups(split)) for split in SPLITS}
    pq.write_table(table.take(pa.array(np.random.default_rng(0).permutation(len(table)))), path)
    values, _ = unseal(manifest.read_bytes())
    manifest.write_bytes(seal({**values, "row_groups_checksum": checksum(path.read_bytes())}))
    reopened = open_version(version.root)
    assert reopened.digest == version.digest and {split: list(reopened.split_row_groups(split)) for split in SPLITS} == expected


def test_an_index_travels_in_the_pickle_or_is_read_again_if_it_is_large(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = pickle.dumps(version)
    monkeypatch.setattr(row_groups, "PICKLED_BYTES", 0)
    small = pickle.dumps(version)
    assert len(small) < len(carried)
    assert len(pickle.dumps(pickle.loads(small))) < len(small) + 99, "an index that was not read is not read for the next pickle"
    assert list(pickle.loads(small).row_groups) == list(version.row_groups)
    batches = [[batch["label"].tolist() for batch in Loader(opened, "train", Order(2, 64))] for opened in (version, pickle.loads(small))]
    assert batches[0] == batches[1]
    Path(row_groups_path(version.root, "a")).write_bytes(b"altered")
    unread = pickle.loads(small)
    with pytest.raises(CorruptError, match=r"row_groups-a.parquet has sha256:.*; the manifest says sha256:"):
        len(unread.row_groups)
    assert list(pickle.loads(carried).row_groups) == list(version.row_groups)


def test_row_groups_of_folds_travel_as_the_index_and_their_rows(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = {"train": (1,), "validation": (2,), "test": (3,)}
    base, counts = version.row_groups, {split: np.arange(len(version.row_groups)) % (2 + number) for number, split in enumerate(folds)}
    selected = select_row_groups(base, "fold", folds, counts)
    expected = [
        (split, group.part, group.index, int(rows), group.rows, folds[split])
        for split in folds
        for group, rows in zip(base, counts[split], strict=True)
        if rows
    ]
    for groups in (selected, pickle.loads(pickle.dumps(selected))):
        single = [groups[number] for number in range(len(groups))]
        assert single == list(groups)
        assert [(g.split, g.part, g.index, g.rows, g.stored_rows, g.folds) for g in single] == expected  # type: ignore[attr-defined]
        train = groups.select_split("train")
        assert [(group.rows, group.stored_rows) for group in train] == [*zip(train.rows.tolist(), train.stored_rows.tolist(), strict=True)]
    monkeypatch.setattr(row_groups, "PICKLED_BYTES", 0)
    assert len(pickle.dumps(selected)) < len(pickle.dumps(base)) + 20 * len(base) + 2_000


def test_reports_of_many_tasks_are_merged_as_columns() -> None:
    groups = some_groups(900)
    reports = [Report(groups[start : start + 3]) for start in range(0, 900, 3)]
    for number, report in enumerate(reports):
        report.quarantine[f"quarantine-a/{number}"] = number
        report.refuse("by a hash", f"row {number}", 2)
    merged = merge_reports(pa.Table.from_batches([report.to_batch() for report in [*reports, Report()]]))
    assert list(merged.row_groups) == groups and len(merged.quarantine) == 300 and merged.quarantine.total() == 299 * 150
    assert merged.refused == {"by a hash": 600} and merged.samples == {"by a hash": "row 0"}
    merged.add(Report(groups[:2]))
    assert list(merged.row_groups) == groups + groups[:2]


def test_a_part_of_another_version_is_found_beside_this_one(version: Version) -> None:
    assert part_path("bucket/data/a", "data-1/part.parquet") == "bucket/data/a/data-1/part.parquet"
    assert part_path("bucket/data/a", "../b/data-1/part.parquet") == "bucket/data/b/data-1/part.parquet"
    parent, child = Path(version.root), Path(version.root).parent / "child"
    child.mkdir()
    commit(LOCAL, str(child), version.manifest, [replace(group, file=f"../{parent.name}/{group.file}") for group in version.row_groups])
    assert sum(len(batch["label"]) for batch in Loader(open_version(str(child)), "train", Order(2, 64, remainder="keep"))) == 2_000


PATHS = ["/raw/b.csv", "/raw/a.csv", "/raw/é\n.csv", '/raw/"quoted\\".csv', "/raw/\x7f", "/raw/\U0001f600", "/raw/ﬀ", "", "/raw/a.csv"]


@pytest.mark.parametrize("paths", [PATHS, ["/raw/b", "/raw/a"], ["/raw/a", "/raw/b"], []])
def test_p6_summaries_of_source_files_are_those_of_single_ones(paths: list[str], tmp_path: Path) -> None:
    files = [SourceFile(path, number**9, f"sha256:{number:064x}") for number, path in enumerate(paths)]
    digest = sha256()
    for file in sorted(files):
        digest.update(json.dumps([file.path, file.bytes, file.checksum]).encode() + b"\n")
    columns = collect_files(files)
    for sources in ({"t": files}, {"t": columns}):
        (summary,) = source_summaries(sources).values()
        assert (summary.files, summary.bytes, summary.digest) == (len(files), sum(file.bytes for file in files), digest.hexdigest())
        checksum_of_list = write_sources(LOCAL, str(tmp_path / "sources.parquet"), {"t": sources["t"], "u": files[:1]})
        listed = read_sources(LOCAL, str(tmp_path / "sources.parquet"), checksum_of_list)
        assert listed == {name: tuple(part) for name, part in (("t", files), ("u", files[:1])) if part}
    assert list(columns) == files and columns == tuple(files) and columns == collect_files(files) and len(columns) == len(files)
    assert list(columns[1:]) == files[1:] and [columns[number] for number in range(len(files))] == files
    assert list(columns.checksums_in_order()) == sorted(file.checksum for file in files)
    assert (columns == files[1:]) == (not files) and columns != [*files, SourceFile("/raw/c", 1, "")]


def test_a_table_of_many_rows_is_read_twice_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.data.versions.checked_tables.ONCE_BYTES", 0)
    groups, path = collect_row_groups(some_groups(50)), str(tmp_path / "index.parquet")
    expected = write_table(LOCAL, path, ROW_GROUPS, groups.batches(), ["file"])
    assert expected == checksum(Path(path).read_bytes())
    monkeypatch.setattr("pipelines.data.versions.checked_tables.BATCH_ROWS", 7)
    assert pa.Table.from_batches(read_batches(LOCAL, path, ROW_GROUPS, expected)) == pa.Table.from_batches(groups.batches())
    with pytest.raises(CorruptError, match="has other columns than x, or NULLs in them"):
        list(read_batches(LOCAL, path, pa.schema({"x": pa.int64()}), expected))
    with pytest.raises(CorruptError, match="the manifest says nothing"):
        list(read_batches(LOCAL, path, ROW_GROUPS, ""))
    table = pa.table({"x": pa.array([1, None] * 10)})
    pq.write_table(table, path)
    with pytest.raises(CorruptError, match="or NULLs in them"):
        list(read_batches(LOCAL, path, table.schema, checksum(Path(path).read_bytes())))
