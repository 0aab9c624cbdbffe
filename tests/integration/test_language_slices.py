"""Documents to windows to a language model, on slices of the shipped pipelines: nothing lost, the same on any machine."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from pyspark.sql import SparkSession
from raw import raw
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.order import shard_range
from pipelines.data.versions.schema import to_numpy
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import QualityError, SourceError
from pipelines.etl.run import run
from pipelines.launch.training_run import Result, train

ROOT = Path(__file__).parents[2]
SMALL = {"task.layers": 1, "task.width": 32, "task.heads": 2, "task.sample_tokens": 20, "train.epochs": 2, "train.workers": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    return tmp_path_factory.mktemp("language")


def settings(home: Path, name: str, table: str, path: Path) -> dict[str, Any]:
    return {
        f"source.tables.{table}.path": str(path),
        "dataset.path": str(home / "data" / name),
        "train.storage": str(home / "runs"),
        "tracking.uri": new_store(home),
    }


@pytest.fixture(scope="module")
def plays(home: Path) -> tuple[Config, str]:
    """conf/shakespeare.yaml over the first 60,000 characters, and those."""
    text = raw("tinyshakespeare", "data", "tinyshakespeare", "input.txt").read_text()[:60_000]
    (home / "input.txt").write_text(text)
    changed = {"dataset.features.text.length": 64, "train.global_batch": 32, **SMALL}
    config = load(ROOT / "conf/shakespeare.yaml", settings(home, "plays", "plays", home / "input.txt") | changed)
    run(config)
    return config, text


def dataset_version(config: Config) -> Version:
    return open_version(config.dataset.path, config.data_identity)


def windows_in(version: Version, split: str) -> np.ndarray:
    (column,) = version.columns
    groups = version.split_row_groups(split)
    tables = [pq.ParquetFile(f"{version.root}/{group.file}").read_row_group(group.index) for group in groups]
    return np.concatenate([to_numpy(column, table.column(0).combine_chunks()) for table in tables])


def text_packer(version: Version) -> Packer:
    packer = restore_encoder(version.manifest.encoders["text"])
    assert isinstance(packer, Packer)
    return packer


def multiset(windows: np.ndarray) -> Counter[bytes]:
    return Counter(row.tobytes() for row in windows)


def test_p2_every_character_is_in_one_window_of_its_split(plays: tuple[Config, str]) -> None:
    config, text = plays
    version = dataset_version(config)
    packer, border = text_packer(version), int(len(text) * 0.9)
    for split, part in (("train", text[:border]), ("validation", text[border:])):
        windows = windows_in(version, split)
        expected = packer.windows([np.array(packer.encode(pa.array([part]))[0].as_py())])
        assert multiset(windows) == multiset(expected)
        assert version.rows(split) == version.manifest.splits[split].rows == len(windows) == -(-(len(part) + 1) // 64)
    order = windows_in(version, "train")
    assert (order[1:, 0] == order[:-1, -1]).mean() < 0.3, "neighbours in the text are no neighbours in the part"
    assert (version.manifest.rows_parsed, version.manifest.quarantined) == (1, {})


def test_p3_an_epoch_has_every_window_once_on_any_number_of_workers(plays: tuple[Config, str]) -> None:
    version = dataset_version(plays[0])
    order = Order(8, 32, seed=3, window=2, remainder="keep")
    steps = {}
    for world_size in (1, 2, 3, 8):
        loaders = [Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True) for rank in range(world_size)]
        batches = zip(*loaders, strict=True)
        steps[world_size] = [sorted(np.concatenate([batch["row_number"].numpy() for batch in step]).tolist()) for step in batches]
    assert steps[1] == steps[2] == steps[3] == steps[8]
    assert sorted(number for step in steps[1] for number in step) == list(range(version.rows("train")))


@pytest.fixture(scope="module")
def result(plays: tuple[Config, str], ray_cluster: None) -> Result:
    return train(plays[0])


@pytest.mark.full
def test_it_is_one_run_with_a_text_for_every_epoch(plays: tuple[Config, str], result: Result) -> None:
    client = MlflowClient(plays[0].tracking.uri)
    names = [file.path for file in client.list_artifacts(result.run_id, "samples")]
    assert names == ["samples/epoch-0001.txt", "samples/epoch-0002.txt"]
    assert len(mlflow.artifacts.load_text(f"{client.get_run(result.run_id).info.artifact_uri}/{names[0]}")) >= 20
    assert client.get_run(result.run_id).data.metrics["train/data_wait_fraction"] < 0.5
    assert {"validation/nats_per_token", "validation/perplexity", "validation/bits_per_byte"} <= result.metrics.keys()
    assert result.metrics["validation/nats_per_token"] < 3.6


@pytest.mark.full
def test_p7_a_served_text_is_as_probable_as_in_the_evaluation(plays: tuple[Config, str], result: Result) -> None:
    """The validation split is one document: served as a raw row, it is cut into the very windows that were evaluated."""
    config, text = plays
    mlflow.set_tracking_uri(config.tracking.uri)
    model = mlflow.pyfunc.load_model(result.model)
    validation = text[int(len(text) * 0.9) :]
    predictions = model.predict(pd.DataFrame({"text": [validation, "", "ROMEO:"]}))
    assert predictions["nats_per_token"][0] == pytest.approx(result.metrics["validation/nats_per_token"], rel=1e-6)
    assert predictions["bits_per_byte"][0] == pytest.approx(result.metrics["validation/bits_per_byte"], rel=1e-6)
    assert (predictions["tokens"][0], predictions["tokens"][2]) == (len(validation) + 1, 7)
    assert predictions["refused"].tolist() == [None, "text: characters cannot encode empty text", None]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some Python files: one twice with other blanks, one too short, one that is not UTF-8."""
    folder = tmp_path_factory.mktemp("sources")
    files = sorted((ROOT / "pipelines").rglob("*.py"))
    for number, file in enumerate(files):
        (folder / f"{number:03}_{file.name}").write_bytes(file.read_bytes())
    (folder / "copy.py").write_bytes((ROOT / "pipelines/errors.py").read_bytes().replace(b"\n", b"   \r\n"))
    (folder / "short.py").write_text("x = 1\n")
    (folder / "latin.py").write_bytes("é".encode("latin-1") * 300)
    return folder


def code(home: Path, name: str, path: str, **changed: Any) -> Config:
    values = settings(home, name, "files", Path(path)) | {"dataset.part_bytes": 60_000, "dataset.features.text.vocabulary": 400}
    return load(ROOT / "conf/python_code.yaml", values | SMALL | {"train.global_batch": 32, "source.max_quarantined": 0.05} | changed)


@pytest.fixture(scope="module")
def code_version(home: Path, sources: Path) -> Version:
    config = code(home, "code", f"{sources}/**/*.py")
    run(config)
    return dataset_version(config)


@pytest.mark.full
def test_p6_the_digest_is_the_same_however_the_documents_come(
    home: Path, sources: Path, code_version: Version, spark: SparkSession
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    config = code(home, "again", str(sources))
    try:
        spark.conf.set("spark.sql.shuffle.partitions", 11)
        run(config)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert dataset_version(config).digest == code_version.digest
    assert all(len({group.part for group in code_version.split_row_groups(split)}) > 1 for split in ("train",))


@pytest.mark.full
def test_code_is_cleaned_and_deduplicated_and_what_is_refused_is_counted(code_version: Version, sources: Path) -> None:
    written = [path.read_text() for path in sources.glob("*.py") if path.name not in ("latin.py", "short.py", "copy.py")]
    assert list(code_version.manifest.quarantined.values()) == [1]
    (record,) = pq.read_table(f"{code_version.root}/quarantine-{code_version.manifest.attempt}").to_pylist()
    assert "latin.py" in record["source"]
    assert code_version.manifest.rows_parsed == len(list(sources.glob("*.py")))
    windows = np.concatenate([windows_in(code_version, split) for split in ("train", "validation", "test")])
    ends = int(((windows[:, :-1] != 0) & (windows[:, 1:] == 0)).sum())
    assert 0 < ends <= len([text for text in written if len(text) >= 200])
    tokens = text_packer(code_version).tokens
    assert len(tokens) == 400 and len(code_version.manifest.encoders["text"].state["merges"]) == 400 - 257
    assert json.loads(code_version.manifest.to_json())["encoders"]["text"]["column"]["cardinality"] == 400


def test_documents_that_no_encoder_takes_refuse_the_version(home: Path) -> None:
    (home / "texts.txt").write_text("a\n\n" * 50)
    query = {"source.query": "SELECT IF(value = '', NULL, value) AS text FROM files", "source.tables.files.options": {}}
    with pytest.raises(QualityError, match=r"50 of 100 rows were refused .*\n  50 × text: bpe cannot encode NULL"):
        run(code(home, "texts", str(home / "texts.txt"), **query, **{"dataset.split": {"train": 1, "validation": 0, "test": 0}}))


@pytest.mark.full
def test_a_split_without_a_document_is_named(home: Path) -> None:
    (home / "one.txt").write_text("a text of one line\n")
    query = {"source.query": "SELECT value AS text FROM files", "source.tables.files.options": {}}
    with pytest.raises(SourceError, match="no row is left for "):
        run(code(home, "one", str(home / "one.txt"), **query))
