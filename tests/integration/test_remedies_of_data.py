"""Remedies that errors of Spark's side offer are carried out: `unit/test_remedies.py` names the tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import java_gateway
from pyspark.sql import SparkSession
from stores import new_store
from tables import read_tables, source, view_rows

from pipelines.config import parse
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.versions.plain import open_parquet
from pipelines.data.versions.versions import open_version
from pipelines.errors import DatasetError, SourceError
from pipelines.etl.run import run
from pipelines.spark.job_endings import driver_errors


def read_parquet(spark: SparkSession, path: Path, **settings: Any) -> list[tuple]:
    table = source(t={"format": "parquet", "path": str(path), **settings})
    spark.catalog.clearCache()  # as a run does: Spark takes a table for cached by its path
    with source_errors(table):
        read_tables(spark, table)
        return view_rows(spark)


def launch_java(heap: str = "256m") -> Any:
    """Another Java driver than the session's."""
    with pytest.MonkeyPatch.context() as environment, driver_errors():
        environment.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        environment.setenv("SPARK_DRIVER_MEMORY", heap)
        return java_gateway.launch_gateway()


@pytest.mark.usefixtures("spark")
def test_a_java_driver_that_does_not_start_or_dies_is_started_with_what_it_lacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as other, pytest.raises(DatasetError, match=r"Java 17 or newer; install one, such as .*, or set JAVA_HOME"):
        other.setenv("JAVA_HOME", str(tmp_path))
        launch_java()
    first = launch_java()
    first.proc.kill()
    first.proc.wait(60)
    with pytest.raises(DatasetError, match="set SPARK_DRIVER_MEMORY to more"), driver_errors():
        first.jvm.java.lang.System.nanoTime()
    second = launch_java("512m")
    try:
        assert second.jvm.java.lang.Runtime.getRuntime().maxMemory() > 400 * 2**20
    finally:
        second.shutdown()
        second.proc.stdin.close()
        second.proc.wait(60)


@pytest.mark.usefixtures("spark")
def test_text_that_plain_parquet_has_is_encoded_by_etl(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"word": ["a", "b"] * 200, "y": [0, 1] * 200, "id": list(range(400))}), tmp_path / "raw" / "a.parquet")
    with pytest.raises(DatasetError, match=r"column word is (large_)?string; .* encode it with jobs/etl.py"):
        open_parquet(str(tmp_path / "raw"), "y")
    config = {
        "name": "words",
        "source": {"tables": {"t": {"format": "parquet", "path": str(tmp_path / "raw")}}, "query": "SELECT * FROM t"},
        "dataset": {"path": str(tmp_path / "data"), "key": ["id"], "features": {"word": "vocabulary"}, "target": {"y": "binary"}},
        "task": {"kind": "tabular"},
        "tracking": {"uri": new_store(tmp_path)},
    }
    run(parse(config, "words"))
    assert open_version(str(tmp_path / "data")).rows("train")


def test_a_file_whose_footer_leads_outside_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow counts a row group that Spark passes over, since its offset lies beyond the end."""
    path = tmp_path / "a.parquet"

    def write() -> None:
        numbers = np.random.default_rng(0).integers(0, 2**62, 30_000)
        pq.write_table(pa.table({"a": numbers}), path, row_group_size=15_000, use_dictionary=False, compression="none")

    write()
    offset = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content = path.read_bytes()
    right, wrong = varint(2 * offset), varint(2 * (2**20 - 1))
    assert len(right) == len(wrong) and right in content[-1_000:] and offset < len(content) < 2**20 - 1
    path.write_bytes(content[:-1_000] + content[-1_000:].replace(right, wrong))
    with pytest.raises(SourceError, match=r"promises 30,000 rows, and Spark finds \d+: its footer is corrupt; write the file again"):
        read_parquet(spark, path)
    write()
    assert len(read_parquet(spark, path)) == 30_000


def varint(number: int) -> bytes:
    """As Thrift's compact protocol has it."""
    digits = []
    while number > 127:
        digits.append(number % 128 + 128)
        number //= 128
    return bytes([*digits, number])


def test_a_file_of_a_codec_that_spark_lacks_is_written_again_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    for number, codec in enumerate(("brotli", "zstd")):
        pq.write_table(pa.table({"a": [number, 2]}), tmp_path / f"{number}.parquet", compression=codec)
    with pytest.raises(SourceError, match=r"0.parquet: .*BrotliCodec; write the file again, or leave it out"):
        read_parquet(spark, tmp_path)
    assert read_parquet(spark, tmp_path / "[1-9].parquet") == [(1,), (2,)]
    pq.write_table(pa.table({"a": [0, 2]}), tmp_path / "0.parquet")
    assert read_parquet(spark, tmp_path) == [(0,), (1,), (2,), (2,)]


def test_files_of_different_types_in_folders_are_found_by_their_folder(spark: SparkSession, tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int32(), pa.int64())):
        folder = tmp_path / f"in/k={number}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": pa.array([number], kind)}), folder / "a.parquet")
    with pytest.raises(SourceError, match="its folders make the column k; give the folder above as the path, without wildcards"):
        read_parquet(spark, tmp_path / "i*")
    assert read_parquet(spark, tmp_path / "in") == [(0, "0"), (1, "1")]
