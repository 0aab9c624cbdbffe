"""Measures our ETL against a hand-written PySpark job for the same columns: on the same cores, in one session, alternately.

    python -m benchmarks.etl.against_by_hand [--rows 5000000] [--repeats 3] [--cores 2] [--format parquet|csv] [--small]
                             [--folder FOLDER] [--results FOLDER]

A row has 13 floats, 13 integers and 13 strings of 10 to 100,000 distinct values, Zipf distributed, and a label. Both jobs
split by a hash, fit mean, standard deviation and vocabularies on the training split, encode, shuffle, sort every part and
write Parquet. Ours also computes checksums of the sources and digests of all row groups, and logs an MLflow run. It parses
all columns of CSV strictly, and keeps them parsed, so that a bad record is quarantined whichever columns the query reads.
"""

import argparse
import os
import shutil
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
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


def generate(folder: Path, rows: int, kind: str) -> Path:
    """Write the raw rows, unless they are there; they depend only on the arguments. Returns their folder."""
    path = folder / f"raw-{rows}-{kind}"
    if path.exists():
        return path
    draft = folder / f"{path.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, ROWS_PER_FILE)):
        table = _rows(np.random.default_rng(number), min(ROWS_PER_FILE, rows - start))
        if kind == "parquet":
            pq.write_table(table, draft / f"{number:05}.parquet", compression="snappy", row_group_size=250_000)
        else:
            pa.csv.write_csv(table, draft / f"{number:05}.csv", pa.csv.WriteOptions(include_header=False))
    draft.rename(path)
    return path


def _rows(random: np.random.Generator, rows: int) -> pa.Table:
    floats = {name: random.normal(number, number + 1, rows) for number, name in enumerate(FLOATS)}
    integers = {name: _zipf(random, distinct, rows).astype(np.int32) for name, distinct in zip(WHOLE, DISTINCT, strict=True)}
    texts = {}
    for name, distinct in zip(TEXTS, DISTINCT, strict=True):
        names = pa.array([f"{value * 2654435761 % 2**32:08x}" for value in range(distinct)])
        texts[name] = names.take(pa.array(_zipf(random, distinct, rows)))
    label = (floats["float_0"] + random.normal(0, 1, rows) > 0).astype(np.int32)
    return pa.table({**floats, **integers, **texts, "label": label})


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
    moments = train.agg(
        *[F.avg(name).alias(f"{name}_mean") for name in FLOATS], *[F.stddev_pop(name).alias(f"{name}_std") for name in FLOATS]
    )
    statistics = moments.first()
    assert statistics is not None
    encoded = table.select(
        "split", "hash", "label", *WHOLE, *TEXTS,
        *[((F.col(name) - statistics[f"{name}_mean"]) / statistics[f"{name}_std"]).cast("float").alias(name) for name in FLOATS],
    )  # fmt: skip
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


def measure(raw: Path, kind: str, folder: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, run alternately."""
    spark, settings = session("benchmark"), config(raw, kind, folder)
    seconds: dict[str, list[float]] = {"by hand": [], "ours": []}
    for _ in range(repeats):
        for name, seconds_by_run in seconds.items():
            output = folder / ("ours" if name == "ours" else "hand")
            shutil.rmtree(output, ignore_errors=True)
            start = time.perf_counter()
            if name == "ours":
                run(settings)
            else:
                run_baseline_job(spark, raw, kind, output)
            seconds_by_run.append(time.perf_counter() - start)
            spark.catalog.clearCache()
            print(f"{name}: {seconds_by_run[-1]:.1f} s", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    add_options(parser)
    parser.add_argument("--memory", default="6g", help="of Spark's JVM")
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--small", action="store_true", help="few rows, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, arguments.memory)
    kind = arguments.format
    rows, repeats = (20_000, 1) if arguments.small else (arguments.rows, arguments.repeats)
    if not arguments.small:  # warm-up: compiles the code of both jobs, and starts Python's workers
        measure(generate(arguments.folder, 50_000, kind), kind, arguments.folder, 1)
    seconds = measure(generate(arguments.folder, rows, kind), kind, arguments.folder, repeats)
    best = {name: statistics.median(seconds_by_run) for name, seconds_by_run in seconds.items()}
    table: list[Row] = [
        {
            "job": name,
            "seconds": best[name],
            "least": min(seconds_by_run),
            "rows/s": int(rows / best[name]),
            "ratio": best[name] / best["by hand"],
        }
        for name, seconds_by_run in seconds.items()
    ]
    title = f"ETL of {rows:,} rows of {kind}, median of {repeats}"
    show(title, table)
    print(save("etl", {title: table}, package_versions("pyspark", "pyarrow", "numpy"), arguments.results))


if __name__ == "__main__":
    main()
