"""Raw tables to a committed version: what comes out, and what is refused."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from people import ROWS, people, write_pipeline
from pyspark.sql import SparkSession
from raw import raw
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.schema import to_numpy
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import ConfigError, CorruptError, DatasetError, QualityError, SourceError
from pipelines.etl.run import run


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One tracking database, for making one takes seconds."""
    return new_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture
def pipeline(tmp_path: Path, uri: str, spark: SparkSession) -> Path:
    """The YAML file of the pipeline of `people`, in a folder of its own."""
    return write_pipeline(tmp_path, uri)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory, uri: str, spark: SparkSession) -> Version:
    """The pipeline's version, made once."""
    config = load(write_pipeline(tmp_path_factory.mktemp("people"), uri))
    manifest = run(config)
    version = open_version(config.dataset.path, config.data_identity)
    assert version.manifest == manifest
    return version


def column(version: Version, name: str, groups: Sequence[RowGroup] | None = None) -> np.ndarray:
    """A tensor column of all splits, or of some row groups, in their order."""
    (schema,) = [column for column in version.columns if column.name == name]
    pieces = []
    for group in version.row_groups if groups is None else groups:
        table = pq.ParquetFile(f"{version.root}/{group.file}").read_row_group(group.index, [name])
        pieces.append(to_numpy(schema, table.column(name).combine_chunks()))
    return np.concatenate(pieces)


def quarantine_rows(version: Version) -> list[dict[str, Any]]:
    return pq.read_table(f"{version.root}/quarantine-{version.manifest.attempt}").to_pylist()


def dataset_files(config: Config) -> list[Path]:
    """Files in the dataset's folder."""
    return [path for path in Path(config.dataset.path).rglob("*") if path.is_file()]


def test_p2_every_row_is_in_one_split_or_in_the_quarantine(version: Version) -> None:
    refused = quarantine_rows(version)
    assert Counter(row["reason"] for row in refused) == version.manifest.quarantined == {"plausible age": 7}
    records = [json.loads(row["record"]) for row in refused]
    assert {record["age"] for record in records} == {130}
    ids = column(version, "id").tolist() + [record["id"] for record in records]
    assert sorted(ids) == list(range(ROWS)) and version.manifest.rows_parsed == ROWS


def test_p8_a_version_holds_its_own_files_and_no_others(version: Version) -> None:
    splits = version.manifest.splits
    assert {split: summary.rows for split, summary in splits.items()} == {split: version.rows(split) for split in splits}
    assert all(summary.parts > 1 and summary.rows > 200 for summary in splits.values())
    attempt = version.manifest.attempt
    names = {path.name for path in Path(version.root).iterdir()}
    assert names == {
        f"data-{attempt}",
        f"quarantine-{attempt}",
        f"rows-{attempt}",
        f"row_groups-{attempt}.parquet",
        f"sources-{attempt}.parquet",
        f"keys-{attempt}",
        "manifest.json",
    }
    files = {str(path.relative_to(version.root)) for path in Path(version.root).glob("data-*/*/*")}
    assert files == {group.file for group in version.row_groups}


def test_raw_rows_of_validation_and_test_are_those_of_the_encoded_rows(version: Version) -> None:
    for split in ("validation", "test"):
        ids = column(version, "id", version.split_row_groups(split)).tolist()
        raw = read_raw_rows(version.filesystem, version.root, version.parts(split), range(len(ids)))
        assert raw is not None and raw["id"].to_pylist() == ids
    assert not list(Path(version.root).glob("rows-*/split=train"))


def test_statistics_are_those_of_the_training_split(version: Version) -> None:
    train = set(column(version, "id", version.split_row_groups("train")).tolist())
    raw = [fields for fields in (line.split(",") for line in people()) if int(fields[0]) in train]
    ages, heights = np.array([int(age) for _, age, *_ in raw]), np.array([float(height) for _, _, height, *_ in raw if height])
    encoders, profile = version.manifest.encoders, version.manifest.profile
    assert encoders["age"].state["mean"] == pytest.approx(ages.mean(), rel=1e-14)
    assert encoders["age"].state["deviation"] == pytest.approx(ages.std(), rel=1e-14)
    assert encoders["height"].state["impute"] == pytest.approx(heights.mean(), rel=1e-14)
    assert (profile["height"]["rows"], profile["height"]["nulls"]) == (len(raw), len(raw) - len(heights))
    assert (profile["age"]["minimum"], profile["age"]["maximum"]) == (ages.min(), ages.max())
    assert profile["city"]["distinct"] == 4 and profile["city"]["nulls"] == sum(city == '""' for _, _, _, city, *_ in raw)


def test_rows_keep_their_values_together_and_are_shuffled(version: Version) -> None:
    raw = {int(number): int(age) for number, age, *_ in (line.split(",") for line in people())}
    state, ids = version.manifest.encoders["age"].state, column(version, "id").tolist()
    ages = column(version, "age") * state["deviation"] + state["mean"]
    assert [raw[number] for number in ids] == ages.round().astype(int).tolist()
    assert column(version, "place").shape == (ROWS - 7, 8)
    assert sum(abs(after - before) == 1 for before, after in pairwise(ids)) < 20


def test_a_second_run_finds_the_version_and_stops(pipeline: Path, version: Version, caplog: pytest.LogCaptureFixture) -> None:
    config = load(pipeline, {"dataset.path": str(Path(version.root).parent)})
    before = {path: path.stat().st_mtime_ns for path in Path(version.root).rglob("*")}
    with caplog.at_level("INFO", "pipelines"):
        assert run(config) == version.manifest
    assert f"{version.root} is up to date" in caplog.messages
    assert {path: path.stat().st_mtime_ns for path in Path(version.root).rglob("*")} == before


@pytest.mark.full
def test_training_opens_the_version_that_etl_found_up_to_date(pipeline: Path, tmp_path: Path) -> None:
    config, raw = load(pipeline, {"dataset.path": str(tmp_path / "data")}), pipeline.parent / "raw/0.csv"
    first, text = run(config), raw.read_text()
    raw.write_text("\n".join(text.splitlines()[:-1]) + "\n")
    second = run(config)
    assert second.digest != first.digest
    raw.write_text(text)
    assert run(config) == first
    reopened = open_version(config.dataset.path, config.data_identity)
    assert reopened.manifest == first
    (Path(reopened.root) / reopened.row_groups[0].file).unlink()
    assert run(config) == first
    with pytest.raises(CorruptError, match=r"the file is missing; restore the file, or remove the version's folder and run jobs/etl.py"):
        list(Loader(reopened, reopened.row_groups[0].split, Order(shards=1, global_batch=1)))
    shutil.rmtree(reopened.root)
    assert run(config).digest == first.digest
    rebuilt = open_version(config.dataset.path, config.data_identity)
    assert len(list(Loader(rebuilt, "train", Order(shards=1, global_batch=1)))) == rebuilt.rows("train")


def test_p6_another_source_is_another_version(pipeline: Path, version: Version) -> None:
    config = load(pipeline)
    with (pipeline.parent / "raw/0.csv").open("a") as raw:
        raw.write("3000,44,1.8,Bonn,job 1,true\n")
    other = run(config)
    assert other.version != version.manifest.version and other.digest != version.manifest.digest
    assert other.identity == version.manifest.identity and other.rows_parsed == ROWS + 1


def test_what_encoders_refuse_is_kept_with_its_reason(pipeline: Path) -> None:
    config = load(pipeline, {"dataset.features.height.impute": "none", "source.max_quarantined": 0.03})
    manifest = run(config)
    refused = quarantine_rows(open_version(config.dataset.path))
    assert manifest.quarantined == {"height: standardize cannot encode NULL": 60, "plausible age": 7}
    assert {json.loads(row["record"])["height"] for row in refused if row["reason"].startswith("height")} == {None}
    assert sum(split.rows for split in manifest.splits.values()) == ROWS - 67


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"source.max_quarantined": 0.002}, ["7 of 3,000 rows were refused", "0.20%", '7 × plausible age, such as {"id":']),
        pytest.param(
            {"dataset.features.height.impute": "none", "source.max_quarantined": 0.01},
            ["67 of 3,000 rows were refused", "60 × height: standardize cannot encode NULL, such as {"],
            marks=pytest.mark.full,
        ),
    ],
)
def test_p8_too_many_refused_rows_leave_no_version(pipeline: Path, overrides: dict[str, Any], words: list[str]) -> None:
    config = load(pipeline, overrides)
    with pytest.raises(QualityError) as raised:
        run(config)
    assert all(word in str(raised.value) for word in words)
    assert dataset_files(config) == []


def test_a_column_that_the_query_does_not_give(pipeline: Path) -> None:
    config = load(
        pipeline,
        {
            "dataset.features.age": {"encoder": "standardize", "column": "agee"},
            "dataset.target": {"rich": {"encoder": "binary", "column": "wealthy"}},
        },
    )
    with pytest.raises(ConfigError) as raised:
        run(config)
    assert str(raised.value).splitlines() == [
        "dataset.features.age: the query gives no column agee; did you mean age? (it gives id, age, height, city, job, rich, ratio)",
        "dataset.target.rich: the query gives no column wealthy; it gives id, age, height, city, job, rich, ratio",
    ]


def test_a_split_that_gets_no_rows(pipeline: Path) -> None:
    config = load(pipeline, {"source.query": "SELECT *, 1 AS ratio FROM people WHERE id < 5"})
    with pytest.raises(SourceError, match=r"no row is left for .*; give more rows, or change dataset.split"):
        run(config)
    assert dataset_files(config) == []


def test_p8_a_place_that_cannot_be_written_is_named(pipeline: Path) -> None:
    (pipeline.parent / "file").touch()
    config = load(pipeline, {"dataset.path": str(pipeline.parent / "file/data")})
    with pytest.raises(DatasetError, match=f"{pipeline.parent}/file/data/.*Not a directory"):
        run(config)


def test_a_dataset_inside_of_its_own_raw_data_is_refused_at_once(pipeline: Path) -> None:
    path = load(pipeline).source.tables["people"].path
    assert isinstance(path, str)
    config = load(pipeline, {"source.tables.people.path": str(Path(path).parent), "dataset.path": f"{Path(path).parent}/data"})
    with pytest.raises(ConfigError, match=r"lies where source\.tables\.people is read from"):
        run(config)
    assert not Path(config.dataset.path).exists()


def test_repeated_keys_and_columns_left_out(pipeline: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = "SELECT *, 1 AS ratio, 2 AS unused FROM people UNION ALL SELECT *, 2 AS ratio, 2 FROM people WHERE id < 20"
    config = load(pipeline, {"source.query": query})
    place = Path(config.source.tables["people"].place)
    (pipeline.parent / ".dvc").mkdir()
    place.with_name(f"{place.name}.dvc").write_text(f"outs:\n- md5: 0e956a1a.dir\n  path: {place.name}\n")
    with caplog.at_level("INFO", "pipelines"):
        manifest = run(config)
    assert f"source.tables.people: DVC has these files as 0e956a1a.dir in {place.name}.dvc" in manifest.notes
    assert manifest.quarantined == {"plausible age": 8, "repeated key: id": 19}
    assert sorted(column(open_version(config.dataset.path), "id").tolist()) == [number for number in range(ROWS) if number % 450 != 17]
    assert "columns of the query left out: unused" in caplog.messages


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_published_split_of_real_data_is_kept(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RAW", str(raw("adult").parent))
    conf = Path(__file__).parents[2] / "conf/adult.yaml"
    config = load(conf, {"dataset.path": str(tmp_path / "adult"), "tracking.uri": uri})
    manifest = run(config)
    assert manifest.splits["test"].rows == 16_281
    assert manifest.splits["train"].rows + manifest.splits["validation"].rows == 32_561
    assert manifest.rows_parsed == 48_842 and manifest.quarantined == {}
    sources = open_version(config.dataset.path).sources()
    files = {(file.path, file.bytes, file.checksum) for table_files in sources.values() for file in table_files}
    assert files == {
        (str(path), path.stat().st_size, f"sha256:{sha256(path.read_bytes()).hexdigest()}") for path in raw("adult").glob("adult-t*.csv")
    }
    assert sum(summary.bytes for summary in manifest.sources.values()) == sum(size for _, size, _ in files)
    assert manifest.profile["workclass"]["most_frequent"]["Private"] == max(manifest.profile["workclass"]["most_frequent"].values())


def test_a_missing_source_is_named_by_its_table(pipeline: Path) -> None:
    config = load(pipeline, {"source.tables.people.path": "/nowhere/people.csv"})
    with pytest.raises(SourceError, match=r"^source\.tables\.people: /nowhere/people\.csv: no such file"):
        run(config)
    assert dataset_files(config) == []
