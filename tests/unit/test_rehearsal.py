"""Samples of a config's tables, on which `init` tries its draft."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from iceberg_tables import HandmadeTable, field

from pipelines.config import parse
from pipelines.config.source.source import Source
from pipelines.rehearsal import sampled_tables
from pipelines.rehearsal.sampled_tables import sample_tables, use_samples


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_tables, "MOST_BYTES", 64 * 100)
    monkeypatch.setattr(sampled_tables, "MOST_FILE_BYTES", 10_000)
    monkeypatch.setattr(sampled_tables, "MOST_FILES", 10)


def source(kind: str, path: Path, **settings: object) -> Source:
    schema = {"schema": "id int, text string"} if kind in ("csv", "json") else {}
    return Source.model_validate({"tables": {"t": {"format": kind, "path": str(path), **schema, **settings}}})


def csv_lines(rows: int) -> bytes:
    return b"id,text\n" + b"".join(f"{row},{row:040}\n".encode() for row in range(rows))


def test_small_data_are_read_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(csv_lines(20))
    assert sample_tables(source("csv", tmp_path / "t.csv"), tmp_path / "sample").is_complete


@pytest.mark.parametrize("rows", [150, 1_000, 10_000])
def test_a_sample_of_lines_has_the_first_and_the_last_ones_and_none_twice(tmp_path: Path, rows: int) -> None:
    (tmp_path / "t.csv").write_bytes(csv_lines(rows))
    sampled = sample_tables(source("csv", tmp_path / "t.csv"), tmp_path / "sample")
    lines = Path(sampled.paths["t"]).read_bytes().splitlines()
    every_line = csv_lines(rows).splitlines()
    assert lines[:2] == every_line[:2] and lines[-1] == every_line[-1]
    assert len(set(lines)) == len(lines) and set(lines) <= set(every_line)


def test_records_of_several_lines_are_whole(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,text\n" + b"".join(f'{row},"{row}\n{row}"\n'.encode() for row in range(2_000)))
    sampled = sample_tables(source("csv", tmp_path / "t.csv", options={"multiLine": True}), tmp_path / "sample")
    assert Path(sampled.paths["t"]).read_bytes().count(b'"') % 2 == 0


def test_a_compressed_file_stays_compressed(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(csv_lines(20_000)))
    sampled = sample_tables(source("csv", tmp_path / "t.csv.gz"), tmp_path / "sample")
    lines = gzip.decompress(Path(sampled.paths["t"]).read_bytes()).splitlines()
    assert 10 < len(lines) < 20_000 and lines[0] == b"id,text"


def test_rows_of_parquet_keep_their_types(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(20_000), pa.int16()), "at": pa.array(range(20_000), pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1_000, compression="none", use_dictionary=False)
    sampled = sample_tables(source("parquet", tmp_path / "t.parquet"), tmp_path / "sample")
    sample = pq.read_table(sampled.paths["t"])
    assert sample.schema == table.schema and 0 < len(sample) < len(table)


def test_of_many_files_some_are_read_with_the_smallest_and_those_of_equal_names(tmp_path: Path) -> None:
    for row in range(40):
        for folder in ("images", "masks"):
            (tmp_path / folder / "a").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "a" / f"{row}.png").write_bytes(b"" if row == 33 else b"png")
    tables = {name: {"format": "binaryFile", "path": str(tmp_path / name)} for name in ("images", "masks")}
    both = Source.model_validate({"tables": tables, "query": "SELECT 1"})
    sampled = sample_tables(both, tmp_path / "sample")
    images, masks = (sorted(path.name for path in Path(sampled.paths[name]).rglob("*.png")) for name in ("images", "masks"))
    assert images == masks and "33.png" in images and 10 <= len(images) <= 11


def test_a_large_file_that_cannot_be_cut_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"x" * 20_000)
    assert sample_tables(source("excel", tmp_path / "t.xlsx", schema="id int"), tmp_path / "sample").unread == ("t",)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_of_a_large_table_with_a_log_some_rows_are_tried_without_deleted_ones(kind: str, tmp_path: Path) -> None:
    def write(folder: Path, rows: int) -> Path:
        values = pa.table({"id": pa.array(range(rows), pa.int64()), "name": [f"{row:040}" for row in range(rows)]})
        if kind == "delta":
            write_deltalake(str(folder), values)
            DeltaTable(str(folder)).delete("id < 1000")
        else:
            table = HandmadeTable(folder, [field(1, "id", "long"), field(2, "name", "string")])
            table.commit("append", [added := table.data(values, {"id": 1, "name": 2})])
            table.commit("delete", [table.position_deletes({added["file_path"]: range(min(1000, rows))})])
        return folder

    assert sample_tables(source(kind, write(tmp_path / "small", 20)), tmp_path / "sample").is_complete
    large = source(kind, write(tmp_path / "large", 20_000))
    sampled = sample_tables(large, tmp_path / "sample")
    ids = pq.read_table(sampled.paths["t"])["id"].to_pylist()
    assert not sampled.unread and 10 < len(ids) < 1_000 and min(ids) >= 1_000 and max(ids) > 18_000
    dataset = {"path": str(tmp_path), "features": {"id": "identity"}, "target": {"name": "label"}}
    config = parse({"name": "n", "source": large.model_dump(), "dataset": dataset, "task": {"kind": "tabular"}}, "test")
    (table,) = use_samples(config, str(tmp_path / "version"), sampled.paths).source.tables.values()
    assert (table.format, table.place) == ("parquet", sampled.paths["t"])


def test_a_table_that_gives_no_sample_is_only_analysed(tmp_path: Path) -> None:
    table = {"format": "spark", "source": "jdbc", "options": {"url": "jdbc:x:"}}
    assert sample_tables(Source.model_validate({"tables": {"t": table}}), tmp_path).unread == ("t",)
