"""Measures our ETL against a hand-written PySpark job for the same columns: on the same cores, in one session, alternately.

    python -m benchmarks.etl.against_by_hand [--rows 5000000] [--repeats 3] [--cores 2] [--format parquet|csv] [--small]
                             [--numbers] [--folder FOLDER] [--results FOLDER]

A row has 13 floats, 13 integers and 13 strings of 10 to 100,000 distinct values, Zipf distributed, and a label. Both jobs
split by a hash, fit mean, standard deviation and vocabularies on the training split, encode, shuffle, sort every part and
write Parquet. Ours also computes checksums of the sources and digests of all row groups, and logs an MLflow run. It parses
all columns of CSV strictly, and keeps them parsed, so that a bad record is quarantined whichever columns the query reads.

With --numbers a row is an integer key and ten floats, by default 20,000,000 rows once. Then ours and the hand-written job run without a
key, and again refusing rows whose key repeats. By hand, `dropDuplicates` keeps one row of each key; the other counts the keys first, and
drops nothing if none repeats, as ours does.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import Config, parse
from pipelines.etl.run import run
from pipelines.spark.session import session

FLOATS = [f"float_{number}" for number in range(13)]
WHOLE = [f"int_{number}" for number in range(13)]
TEXTS = [f"text_{number}" for number in range(13)]
DISTINCT = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000]
MIN_COUNT = 10
ROWS_PER_FILE = 1_000_000
KEY, NUMBERS = "id", [f"number_{number}" for number in range(10)]
Job = Callable[[], object]


def generate(folder: Path, rows: int, kind: str, make_rows: Callable[[int, int], pa.Table] | None = None) -> Path:
    """Write the raw rows, unless they are there; they depend only on the arguments. Returns their folder. `make_rows` makes those of a
    file from its number and their number."""
    make_rows = make_rows or _rows
    path = folder / f"raw-{rows}-{kind}{make_rows.__name__.removesuffix('_rows')}"
    if path.exists():
        return path
    draft = folder / f"{path.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, ROWS_PER_FILE)):
        table = make_rows(number, min(ROWS_PER_FILE, rows - start))
        if kind == "parquet":
            pq.write_table(table, draft / f"{number:05}.parquet", compression="snappy", row_group_size=250_000)
        else:
            pa.csv.write_csv(table, draft / f"{number:05}.csv", pa.csv.WriteOptions(include_header=False))
    draft.rename(path)
    return path


def _rows(file: int, rows: int) -> pa.Table:
    random = np.random.default_rng(file)
    floats = {name: random.normal(number, number + 1, rows) for number, name in enumerate(FLOATS)}
    integers = {name: _zipf(random, distinct, rows).astype(np.int32) for name, distinct in zip(WHOLE, DISTINCT, strict=True)}
    texts = {}
    for name, distinct in zip(TEXTS, DISTINCT, strict=True):
        names = pa.array([f"{value * 2654435761 % 2**32:08x}" for value in range(distinct)])
        texts[name] = names.take(pa.array(_zipf(random, distinct, rows)))
    label = (floats["float_0"] + random.normal(0, 1, rows) > 0).astype(np.int32)
    return pa.table({**floats, **integers, **texts, "label": label})


def number_rows(file: int, rows: int) -> pa.Table:
    random = np.random.default_rng(file)
    key = np.arange(file * ROWS_PER_FILE, file * ROWS_PER_FILE + rows, dtype=np.int64)
    return pa.table({KEY: key, **{name: random.normal(number, number + 1, rows) for number, name in enumerate(NUMBERS)}})


def _zipf(random: np.random.Generator, distinct: int, rows: int) -> np.ndarray:
    """Values below `distinct`; the n-th has a frequency of about 1 / n."""
    return (np.exp(random.random(rows) * np.log(distinct)) - 1).astype(np.int64)


def ddl() -> str:
    columns = [*((name, "double") for name in FLOATS), *((name, "int") for name in WHOLE), *((name, "string") for name in TEXTS)]
    return ", ".join(f"{name} {kind}" for name, kind in [*columns, ("label", "int")])


def config(raw: Path, kind: str, folder: Path) -> Config:
    vocabulary = {"encoder": "vocabulary", "min_count": MIN_COUNT}
    features = dict.fromkeys(FLOATS, "standardize") | dict.fromkeys([*WHOLE, *TEXTS], vocabulary)
    return parse(
        {
            "name": "benchmark",
            "source": {"tables": {"raw": {"format": kind, "path": str(raw), "schema": ddl()}}},
            "dataset": {"path": str(folder / "ours"), "features": features, "target": {"label": "binary"}},
            "task": {"kind": "tabular"},
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "benchmark",
    )


def config_of_numbers(raw: Path, folder: Path, key: list[str]) -> Config:
    *features, target = NUMBERS
    return parse(
        {
            "name": "benchmark",
            "source": {"tables": {"raw": {"format": "parquet", "path": str(raw)}}},
            "dataset": {
                "path": str(folder / "ours"),
                "key": key,
                "features": dict.fromkeys(features, "standardize"),
                "target": {target: "standardize"},
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "benchmark",
    )


def run_baseline_of_numbers(spark: SparkSession, raw: Path, output: Path, has_key: bool, counts_keys: bool = False) -> None:
    """The job as an expert would write it for numbers alone, in the way of `run_baseline_job`."""
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", 4 * cores)
    read = spark.read.parquet(str(raw))
    drops = has_key and not (counts_keys and read.groupBy(KEY).count().where("count > 1").isEmpty())
    unique = read.dropDuplicates([KEY]) if drops else read
    hashed = unique.withColumn("hash", F.xxhash64(KEY) if has_key else F.xxhash64(*NUMBERS))
    bucket = F.pmod("hash", F.lit(10))
    table = hashed.withColumn("split", F.when(bucket < 8, "train").when(bucket < 9, "validation").otherwise("test"))
    moments = table.where("split = 'train'").agg(*moment_columns(NUMBERS)).first()
    assert moments is not None
    encoded = table.select("split", "hash", *[standardize_column(name, moments) for name in NUMBERS])
    placed = encoded.repartition(4 * cores, "hash").sortWithinPartitions("split", "hash").drop("hash")
    placed.write.partitionBy("split").option("compression", "lz4_raw").parquet(str(output))


def moment_columns(names: list[str]) -> list[Column]:
    return [F.avg(name).alias(f"{name}_mean") for name in names] + [F.stddev_pop(name).alias(f"{name}_std") for name in names]


def standardize_column(name: str, moments: SparkRow) -> Column:
    return ((F.col(name) - moments[f"{name}_mean"]) / moments[f"{name}_std"]).cast("float").alias(name)


def run_baseline_job(spark: SparkSession, raw: Path, kind: str, output: Path) -> None:
    """The job as an expert would write it: one aggregate for the moments, one for all vocabularies, broadcast joins.

    Adaptive execution is off, since it would plan the 26 joins again after each broadcast, which takes a minute.
    """
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", 4 * cores)
    reader = spark.read.schema(ddl())
    read = reader.parquet(str(raw)) if kind == "parquet" else reader.csv(str(raw))
    hashed = read.withColumn("hash", F.xxhash64(*read.columns))
    bucket = F.pmod("hash", F.lit(10))
    table = hashed.withColumn("split", F.when(bucket < 8, "train").when(bucket < 9, "validation").otherwise("test"))
    train = table.where("split = 'train'")
    moments = train.agg(*moment_columns(FLOATS)).first()
    assert moments is not None
    encoded = table.select("split", "hash", "label", *WHOLE, *TEXTS, *[standardize_column(name, moments) for name in FLOATS])
    for name, vocabulary in vocabularies(train).items():
        joined = encoded.join(F.broadcast(vocabulary), encoded[name].cast("string") == vocabulary["value"], "left")
        encoded = joined.withColumn(name, F.coalesce("number", F.lit(0))).drop("value", "number")
    # Four rounds of tasks: enough to keep the cores evenly busy, few enough for files of a good size.
    placed = encoded.withColumn("label", F.col("label").cast("tinyint")).repartition(4 * cores, "hash")
    placed.sortWithinPartitions("split", "hash").drop("hash").write.partitionBy("split").option("compression", "lz4_raw").parquet(
        str(output)
    )


def vocabularies(train: DataFrame) -> dict[str, DataFrame]:
    """A table (value, number) for each column, most frequent values first, in one pass over all columns."""
    names = [*WHOLE, *TEXTS]
    pairs = F.explode(F.array(*[F.struct(F.lit(name).alias("column"), F.col(name).cast("string").alias("value")) for name in names]))
    counts = train.select(pairs.alias("pair")).groupBy("pair.column", "pair.value").count().where(F.col("count") >= MIN_COUNT)
    number = F.row_number().over(Window.partitionBy("column").orderBy(F.desc("count"), "value"))
    numbered = counts.select("column", "value", number.alias("number")).persist()
    return {name: numbered.where(F.col("column") == name).select("value", "number") for name in names}


def jobs_of_mixed(spark: SparkSession, raw: Path, kind: str, folder: Path) -> dict[str, Job]:
    settings = config(raw, kind, folder)
    return {"by hand": partial(run_baseline_job, spark, raw, kind, folder / "hand"), "ours": partial(run, settings)}


def jobs_of_numbers(spark: SparkSession, raw: Path, folder: Path) -> dict[str, Job]:
    """By name, each after the one that it is compared with."""
    by_hand = partial(run_baseline_of_numbers, spark, raw, folder / "hand")
    return {
        "by hand, without a key": partial(by_hand, False),
        "ours, without a key": partial(run, config_of_numbers(raw, folder, [])),
        "by hand, counting keys": partial(by_hand, True, True),
        "by hand, with a key": partial(by_hand, True),
        "ours, with a key": partial(run, config_of_numbers(raw, folder, [KEY])),
    }


def measure(spark: SparkSession, jobs: dict[str, Job], folder: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, run alternately."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            for output in ("ours", "hand"):
                shutil.rmtree(folder / output, ignore_errors=True)
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
            spark.catalog.clearCache()
            print(f"{name}: {seconds[name][-1]:.1f} s", flush=True)
    return seconds


def compare(seconds: dict[str, list[float]], rows: int) -> list[Row]:
    """A line for each job; the ratio of ours is to the line before it."""
    table: list[Row] = []
    for name, seconds_by_run in seconds.items():
        median = statistics.median(seconds_by_run)
        peer = float(table[-1]["seconds"] or 0) if name.startswith("ours") else median
        row: Row = {"job": name, "seconds": median, "least": min(seconds_by_run), "rows/s": int(rows / median), "ratio": median / peer}
        table.append(row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int)
    add_options(parser)
    parser.add_argument("--memory", default="6g", help="of Spark's JVM")
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--numbers", action="store_true", help="rows of a key and ten floats")
    parser.add_argument("--small", action="store_true", help="few rows, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, arguments.memory)
    spark, folder = session("benchmark"), arguments.folder
    kind = "parquet" if arguments.numbers else arguments.format

    def jobs(rows: int) -> dict[str, Job]:
        if arguments.numbers:
            return jobs_of_numbers(spark, generate(folder, rows, kind, number_rows), folder)
        return jobs_of_mixed(spark, generate(folder, rows, kind), kind, folder)

    rows = arguments.rows or (20_000_000 if arguments.numbers else 5_000_000)
    repeats = arguments.repeats or (1 if arguments.numbers else 3)
    if arguments.small:
        rows, repeats = 20_000, 1
    else:  # warm-up: compiles the code of all jobs, and starts Python's workers
        measure(spark, jobs(50_000), folder, 1)
    table = compare(measure(spark, jobs(rows), folder, repeats), rows)
    title = f"ETL of {rows:,} rows of {'a key and ten floats' if arguments.numbers else kind}, median of {repeats}"
    show(title, table)
    name = "etl-numbers" if arguments.numbers else "etl"
    print(save(name, {title: table}, package_versions("pyspark", "pyarrow", "numpy"), arguments.results))


if __name__ == "__main__":
    main()
