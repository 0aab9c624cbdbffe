"""Parquet by many writers, damaged, or made to take memory: read as Arrow reads it, or refused by name."""

import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raw import raw
from tables import read_tables

from pipelines.config.source.source import Source
from pipelines.data.sources.source_errors import source_errors
from pipelines.errors import SourceError

ZERO_BITS = "ARROW-GH-43605.parquet"
"""Its only fault is a dictionary of one entry, whose numbers take 0 bits: no reader has to refuse it."""

MUTATIONS = int(os.environ.get("MUTATIONS", "30"))
"""`MUTATIONS=500 make test ARGS=tests/integration/test_hostile_parquet.py` for more of them."""


def read_parquet(spark: SparkSession, name: str, path: Path, **options: Any) -> pa.Table:
    table = {"format": "parquet", "path": str(path), "options": options}
    source = Source.model_validate({"tables": {name: table}})
    with source_errors(source):
        read_tables(spark, source)
        return spark.sql(source.sql).toArrow()


DAMAGED = ("datapage_v1-corrupt-checksum", "rle-dict-uncompressed-corrupt-checksum", "nation.dict-malformed", "large_string_map.brotli")


@pytest.mark.parametrize(
    ("folder", "names", "files"),
    [("data", [f"{name}.parquet" for name in DAMAGED], 4), pytest.param("bad_data", ["*"], 7, marks=pytest.mark.full)],
)
def test_corrupt_parquet_is_refused_by_name(folder: str, names: list[str], files: int, spark: SparkSession) -> None:
    paths = [path for name in names for path in sorted(raw("hostile", "parquet-testing", folder).glob(name)) if path.name != ZERO_BITS]
    for path in paths:
        with pytest.raises(SourceError, match=f"^source.tables.t: .*{path.name}") as caught:
            read_parquet(spark, "t", path)
        assert len(str(caught.value)) < 600
        assert "\n" not in str(caught.value)
    assert len(paths) == files


def test_a_dictionary_of_one_entry_is_read_as_arrow_reads_it(spark: SparkSession) -> None:
    path = raw("hostile", "parquet-testing", "bad_data", ZERO_BITS)
    assert read_parquet(spark, "t", path)["min_fl"].to_pylist() == pq.ParquetFile(path).read()["min_fl"].to_pylist()


def test_a_small_file_cannot_take_gigabytes(spark: SparkSession) -> None:
    path = raw("hostile", "parquet-testing", "data", "large_string_map.brotli.parquet")
    with pytest.raises(SourceError, match=r"column arr.key_value.key asks for 2,147,483,749 bytes of memory out of 3,346 in the file"):
        read_parquet(spark, "t", path)


@pytest.mark.full
def test_parquet_of_many_writers(spark: SparkSession) -> None:
    """Each file is read as Arrow reads it, or refused by name."""
    paths = sorted(path for path in raw("hostile", "parquet-testing", "data").glob("*.parquet*") if path.suffix != ".json")

    def compare(path: Path) -> bool:
        try:
            table = read_parquet(spark, re.sub(r"\W", "_", path.name), path)
        except SourceError as error:
            assert path.name in str(error)
            return False
        expected = pq.ParquetFile(path).read()
        assert table.num_rows == expected.num_rows, path.name
        for field in expected.schema:
            if (
                pa.types.is_integer(field.type)
                or pa.types.is_floating(field.type)
                or pa.types.is_string(field.type)
                or pa.types.is_binary(field.type)
            ):
                got = table[field.name].cast(field.type) if pa.types.is_integer(field.type) else table[field.name]
                assert repr(got.to_pylist()) == repr(expected[field.name].to_pylist()), (path.name, field)
        return True

    with ThreadPoolExecutor(4) as pool:
        read_right = sum(pool.map(compare, paths))
    assert read_right >= 50


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut out, zeroed or exchanged, mostly in the pages; the footer now and then."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 4, 32])):
        place = chance.randrange(4, len(changed) - (8 if chance.random() < 0.3 else 1_500))
        match chance.choice(["bit", "byte", "zero", "swap"]):
            case "bit":
                changed[place] ^= 1 << chance.randrange(8)
            case "byte":
                changed[place] = chance.choice([0, 1, 127, 128, 255])
            case "zero":
                changed[place : place + 16] = bytes(len(changed[place : place + 16]))
            case "swap":
                other = chance.randrange(4, len(changed) - 8)
                changed[place], changed[other] = changed[other], changed[place]
    return bytes(changed)


@pytest.mark.full
def test_mutated_parquet_is_read_or_refused_in_a_line_without_java_s_words(spark: SparkSession, tmp_path: Path) -> None:
    random_numbers = random.Random(5)
    columns = {
        "i": pa.array([random_numbers.randrange(-(2**31), 2**31) for _ in range(800)], pa.int64()),
        "d": pa.array([random_numbers.random() if number % 7 else None for number in range(800)]),
        "s": pa.array([f"word {random_numbers.randrange(40)}" for _ in range(800)]),
        "t": pa.array([number * 86_400_000_000 for number in range(800)], pa.timestamp("us")),
        "l": pa.array([[number, None] if number % 3 else None for number in range(800)], pa.list_(pa.int32())),
    }
    sound = []
    for options in (
        {"compression": "snappy"},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"compression": "none", "use_dictionary": False},
    ):
        pq.write_table(pa.table(columns), tmp_path / "sound.parquet", row_group_size=300, **options)
        sound.append((tmp_path / "sound.parquet").read_bytes())

    def end(number: int) -> str:
        chance = random.Random(number)
        path = tmp_path / f"m{number}.parquet"
        path.write_bytes(mutate(chance.choice(sound), chance))
        try:
            read_parquet(spark, f"m{number}", path)
        except SourceError as error:
            message = str(error)
            assert message.startswith(f"source.tables.m{number}: ") and path.name in message, message
            assert "\n" not in message and len(message) < 700, message
            assert not re.search(r"java\.|org\.apache|\bat \w+\.|NullPointer|Traceback|Socket is closed", message), message
            return "refused"
        return "read"

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(end, range(MUTATIONS)))
    assert ends.count("refused") > MUTATIONS // 4


@pytest.mark.full
def test_old_calendars(spark: SparkSession) -> None:
    """Files of Spark 2.4.5 do not say that they are in the Julian calendar, those of 2.4.6 do: both as Spark reads them."""
    folder = raw("hostile", "comet-spark-testdata", "spark", "src", "test", "resources", "test-data")
    clocks = {"date": "", "timestamp_millis": " 09:02:03.123"}
    clocks |= dict.fromkeys(("timestamp_micros", "timestamp_int96_plain", "timestamp_int96_dict"), " 09:02:03.123456")
    days = {"v2_4_5": "07", "v2_4_6": "01", "v3_2_0": "01"}
    first = {f"{kind}_{version}": f"1001-01-{days[version]}{clocks[kind]}" for version in days for kind in clocks}
    tables = {name: {"format": "parquet", "path": f"{folder}/before_1582_{name}.snappy.parquet"} for name in first}
    tables["told"] = tables["date_v2_4_5"] | {"options": {"datetimeRebaseMode": "LEGACY"}}
    read_tables(spark, Source.model_validate({"tables": tables, "query": "SELECT 1"}))
    query = " UNION ALL ".join(f"SELECT '{name}' AS name, min(CAST(plain AS string)) AS first FROM {name}" for name in tables)
    assert {row.name: row.first for row in spark.sql(query).collect()} == first | {"told": "1001-01-01"}
