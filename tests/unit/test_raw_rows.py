"""Rows as they were before they were encoded: in the order of the encoded ones, and on the page of the most wrong rows. Starts no Spark."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_parts import render_parts
from pyarrow.fs import LocalFileSystem
from test_pictures import binary_evaluation

from pipelines.config import parse
from pipelines.data.features import fit_encoders
from pipelines.data.features.encoding import needs
from pipelines.data.versions import raw_inputs
from pipelines.data.versions.commit import Attempt, merge_reports, remove_unnamed
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.raw_inputs import read_raw_rows, side_file, write_raw_rows
from pipelines.data.versions.row_groups import collect_row_groups
from pipelines.data.versions.row_keys import KEYS, has_keys, read_keys
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError
from pipelines.etl.refusals import REASON
from pipelines.etl.splits.split_assignment import CONTENT, PART, PLACE, ROW
from pipelines.etl.write import RawRowSelection, WritingJob, _write_part, splits_with_raw_rows
from pipelines.report.evaluation import FOLDER, SplitEvaluation, add_raw_rows, pack, read_splits, unpack
from pipelines.report.page_parts import worst_tables

ROWS = 300
LOCAL = LocalFileSystem()
RANDOM = np.random.default_rng(6)
RAW = pa.table(
    {
        "gain": pa.array(RANDOM.integers(0, 3, ROWS) * 7_298, pa.int32()),
        "born": pa.array([date(1960 + number % 40, 1, 2) for number in range(ROWS)]),
        "paid": pa.array([Decimal(number) / 100 for number in range(ROWS)], pa.decimal128(9, 2)),
        "note": pa.array(["long " * 40 if number % 7 else None for number in range(ROWS)]),
        "photo": pa.array([b"x"] * ROWS),
        "id": pa.array(np.arange(ROWS) + 1_000),
        "rich": pa.array(RANDOM.random(ROWS) < 0.5),
    }
)
DATASET = {"path": "data", "key": ["id"], "features": {"gain": "standardize", "number": {"encoder": "identity", "column": "id"}}}


def write_dataset(folder: Path, splits: frozenset[int]) -> tuple[Version, pa.Table, list[str]]:
    """Two parts of the test split from batches in some order; the encoded rows, and the files of raw ones."""
    from fitting import gather_statistics

    config = parse(
        {
            "name": "t",
            "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
            "dataset": {**DATASET, "target": {"rich": "binary"}},
            "task": {"kind": "tabular"},
        },
        "t",
    )
    assert needs(config.dataset)
    encoders = fit_encoders(config.dataset, gather_statistics(config.dataset, RAW), RAW.schema)
    attempt = Attempt(LOCAL, str(folder), "a")
    job = WritingJob(attempt, encoders, {0: range(0), 1: range(0), 2: range(2)}, 2**20, (ROW, CONTENT), 0, RawRowSelection(("id",), splits))
    hashes = RANDOM.integers(-(2**62), 2**62, ROWS)
    reports = []
    for part in range(2):
        rows = RAW.take(pa.array(np.arange(part, ROWS, 2)))
        more = {ROW: hashes[part::2], CONTENT: -hashes[part::2], PLACE: hashes[part::2], PART: np.full(len(rows), part, np.int32)}
        table = pa.table({**{name: rows[name] for name in rows.column_names}, **more, REASON: pa.nulls(len(rows), pa.string())})
        (batch,) = _write_part(job, iter(table.to_batches(max_chunksize=40)))
        reports.append(batch)
    report = merge_reports(pa.Table.from_batches(reports))
    version = Version(LOCAL, str(folder), cast(Manifest, None), collect_row_groups(report.row_groups))
    return version, pa.concat_tables([pq.read_table(folder / file) for file in version.parts("test")]), report.side_files


def test_raw_rows_lie_in_the_order_of_the_encoded_ones_and_begin_with_the_key(tmp_path: Path) -> None:
    version, encoded, files = write_dataset(tmp_path, frozenset({2}))
    assert sorted(files) == [side_file(part, prefix) for prefix in ("keys", "rows") for part in version.parts("test")]
    numbers = [299, 0, 7, 150, 149]
    rows_read = read_raw_rows(LOCAL, str(tmp_path), version.parts("test"), numbers)
    assert rows_read is not None and rows_read.column_names == ["id", "gain", "born", "paid", "note", "rich"], "bytes are left out"
    assert rows_read["id"].to_pylist() == pytest.approx([encoded["number"][number].as_py() for number in numbers])
    places = [value - 1_000 for value in rows_read["id"].to_pylist()]
    assert rows_read["gain"].to_pylist() == RAW["gain"].take(pa.array(places)).to_pylist()
    assert max(map(len, filter(None, rows_read["note"].to_pylist()))) == 120
    assert read_raw_rows(LOCAL, str(tmp_path), version.parts("test"), [ROWS]) is None
    assert read_raw_rows(LOCAL, str(tmp_path), ["data-b/split=test/part-00000-x.parquet"], [0]) is None


def test_keys_lie_in_the_order_of_the_encoded_rows(tmp_path: Path) -> None:
    version, _, _ = write_dataset(tmp_path, frozenset())
    parts = dict(read_keys(LOCAL, version.root, version.row_groups))
    assert list(parts) == version.parts("test") and has_keys(LOCAL, version.root, version.row_groups)
    for keys in parts.values():
        rows = keys["row"].to_numpy()
        assert (np.diff(rows.view(np.uint64).astype(object)) > 0).all() and (keys["content"].to_numpy() == -rows).all()


def test_a_file_of_keys_that_is_gone_or_of_other_rows_is_named(tmp_path: Path) -> None:
    version, _, _ = write_dataset(tmp_path, frozenset())
    first, second = (tmp_path / side_file(part, KEYS) for part in version.parts("test"))
    pq.write_table(pq.read_table(first).slice(1), first)
    with pytest.raises(CorruptError, match=rf"{first.name} has 149 rows of row, content; the part has 150 rows: restore"):
        list(read_keys(LOCAL, version.root, version.row_groups))
    second.unlink()
    with pytest.raises(CorruptError, match=rf"{second.name}.*restore the file"):
        list(read_keys(LOCAL, version.root, version.row_groups[1:]))
    assert not has_keys(LOCAL, version.root, version.row_groups)


def test_rows_of_train_and_of_large_splits_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, encoded, files = write_dataset(tmp_path, frozenset())
    assert not [file for file in files if file.startswith("rows-")] and len(encoded) == ROWS
    monkeypatch.setattr("pipelines.etl.write.MOST_ROWS", 100)
    assert splits_with_raw_rows({0: 50, 1: 101, 2: 100}, {}) == frozenset({2})


def test_a_file_of_a_task_that_was_tried_again_is_removed(tmp_path: Path) -> None:
    _, _, files = write_dataset(tmp_path, frozenset({2}))
    write_raw_rows(LOCAL, str(tmp_path / "rows-a/split=test/part-00000-retried.parquet"), RAW.select(["id"]))
    remove_unnamed(LOCAL, str(tmp_path), "a", set(files))
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.glob("[kr]*-a/*/*")) == sorted(files)


def test_the_most_wrong_rows_are_shown_with_their_key_and_as_they_were(tmp_path: Path) -> None:
    version, _, _ = write_dataset(tmp_path, frozenset({2}))
    worst = {"row": [12, 5], "loss": [2.0, 1.0], "true": ["a", "b"], "predicted": ["b", "a"], "feature.gain": [-1.91e-05, 7298.0001]}
    split = binary_evaluation(worst=worst)
    unpack(pack({**split.summary, "shapes": {}}, split.tables), tmp_path / FOLDER / "test")
    before = render_parts(*worst_tables(read_splits(tmp_path / FOLDER), ["id"]))
    assert "features as they were encoded" in before and "−1.91e−05" in before
    add_raw_rows(tmp_path / FOLDER, version)
    splits = read_splits(tmp_path / FOLDER)
    page = render_parts(*worst_tables(splits, ["id"]))
    raw = splits[0].tables["worst_rows"]
    assert f"<td>{raw['id'][0]}</td>" in page and '<th>id</th><th class="number">row</th>' in page, "a key has no commas"
    assert "−1.91e−05" not in page and f">{raw['gain'][0]:,}<" in page and str(raw["born"][0]) in page and "id is the key" in page
    assert "since the dataset has no key" in render_parts(*worst_tables(splits))
    add_raw_rows(tmp_path / FOLDER, replace(version, root=str(tmp_path / "moved")))
    assert read_splits(tmp_path / FOLDER) == splits, "those that were filed stay"


def test_a_version_without_raw_rows_or_with_damaged_ones_costs_only_them(tmp_path: Path) -> None:
    part = "data-a/split=test/part-00000-x.parquet"
    group = RowGroup("test", 0, 0, part, 1, 0, 1, "", 0, "", "")
    version = Version(LOCAL, str(tmp_path), cast(Manifest, None), collect_row_groups([group]))
    split = binary_evaluation()
    unpack(pack(split.summary, split.tables), tmp_path / FOLDER / "test")
    add_raw_rows(tmp_path / FOLDER, version)
    (tmp_path / "rows-a/split=test").mkdir(parents=True)
    (tmp_path / "rows-a/split=test/part-00000-x.parquet").write_bytes(b"torn")
    add_raw_rows(tmp_path / FOLDER, version)
    assert [split_read.tables.keys() for split_read in read_splits(tmp_path / FOLDER)] == [split.tables.keys()]


def test_every_column_is_shown(tmp_path: Path) -> None:
    raw = {f"c{number}": [number] for number in range(30)}
    split = binary_evaluation(worst={"row": [1], "loss": [2.0], "true": ["a"], "predicted": ["b"]}, worst_rows=raw)
    page = render_parts(*worst_tables([SplitEvaluation("test", {**split.summary, "shapes": {}}, split.tables)], ["c7"]))
    assert all(f">c{number}</th>" in page for number in range(30)) and raw_inputs.MOST_COLUMNS >= 30
    assert page.index(">c7</th>") < page.index(">row</th>")
