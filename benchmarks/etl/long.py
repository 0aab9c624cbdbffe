"""Measures ETL's stages on many rows with a key, beside DuckDB and a hand-written Spark job on the same rows.

    python -m benchmarks.etl.long [--rows 20000000] [--cores 2] [--memory 4g] [--peers duckdb spark] [--small] [--folder FOLDER]

A row has an int key, four floats, three integers, a text and a label. Ours and the Spark job make a dataset: they refuse repeated
keys, split by a hash, fit, encode, shuffle, sort every part and write Parquet. DuckDB only computes the statistics that the encoders
are fitted on, and whether a key repeats. A line's `fit` divided by `write` is the ratio; spilled bytes are those of all Spark's stages.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import Config, parse
from pipelines.data.versions.data_profile import Files, Survey
from pipelines.etl.run import run
from pipelines.spark.session import session

FLOATS = ["float_0", "float_1", "float_2", "float_3"]
NUMBERS = [*FLOATS, "int_0"]
CATEGORIES = ["int_1", "int_2", "text"]
DISTINCT = {"int_1": 100, "int_2": 10_000, "text": 1_000}
MIN_COUNT = 10
ROWS_PER_FILE = 1_000_000
SMALL_ROWS = 50_000


def generate(folder: Path, rows: int) -> Path:
    """Write the raw rows, unless they are there; they depend only on the arguments. Returns their folder."""
    path = folder / f"raw-{rows}-keyed"
    if path.exists():
        return path
    draft = folder / f"{path.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, ROWS_PER_FILE)):
        table = _rows(np.random.default_rng(number), start, min(ROWS_PER_FILE, rows - start))
        pq.write_table(table, draft / f"{number:05}.parquet", compression="snappy", row_group_size=250_000)
    draft.rename(path)
    return path


def _rows(random: np.random.Generator, start: int, rows: int) -> pa.Table:
    values: dict[str, object] = {"id": np.arange(start, start + rows, dtype=np.int64)}
    values |= {name: random.normal(number, number + 1, rows) for number, name in enumerate(FLOATS)}
    values["int_0"] = random.integers(0, 1_000_000, rows, dtype=np.int32)
    for name, distinct in DISTINCT.items():
        # The n-th value has a frequency of about 1 / n.
        zipf = (np.exp(random.random(rows) * np.log(distinct)) - 1).astype(np.int32)
        values[name] = pa.array([f"{value:08x}" for value in range(distinct)]).take(pa.array(zipf)) if name == "text" else zipf
    values["label"] = random.integers(0, 2, rows, dtype=np.int32)
    return pa.table(values)


def config(raw: Path, folder: Path) -> Config:
    vocabulary = {"encoder": "vocabulary", "min_count": MIN_COUNT}
    return parse(
        {
            "name": "long",
            "source": {"tables": {"raw": {"format": "parquet", "path": str(raw)}}},
            "dataset": {
                "path": str(folder / "ours"),
                "key": ["id"],
                "features": dict.fromkeys(NUMBERS, "standardize") | dict.fromkeys(CATEGORIES, vocabulary),
                "target": {"label": "binary"},
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "benchmark",
    )


def run_ours(raw: Path, folder: Path, rows: int) -> list[Row]:
    """The seconds of the whole, and of each stage with its tasks' and the bytes that they shuffled and spilled."""
    surveys: list[Survey] = []

    def keep(survey: Survey) -> Files:
        surveys.append(survey)
        return {}

    shutil.rmtree(folder / "ours", ignore_errors=True)
    start = time.perf_counter()
    run(config(raw, folder), keep)
    seconds = time.perf_counter() - start
    (survey,) = surveys
    table: list[Row] = [
        {
            "stage": stage,
            "seconds": stage_seconds,
            "of write": stage_seconds / survey.seconds["write"],
            "task seconds": sum(event.task_seconds for event in survey.spark if event.stage == stage),
            "rows read": sum(event.rows_read for event in survey.spark if event.stage == stage),
            "shuffled MB": sum(event.shuffled_bytes for event in survey.spark if event.stage == stage) / 1e6,
            "spilled MB": sum(event.spilled_bytes for event in survey.spark if event.stage == stage) / 1e6,
        }
        for stage, stage_seconds in survey.seconds.items()
    ]
    total: Row = {"stage": "all", "seconds": seconds, "rows/s": int(rows / seconds)}
    return [*table, total]


def measure_duckdb(raw: Path, cores: int) -> Row:
    """Measure the same statistics of the same share of rows with DuckDB, by its hash, and its search for repeated keys."""
    with duckdb.connect(config={"threads": cores}) as connection:
        train = f"(SELECT * FROM read_parquet('{raw}/*.parquet') WHERE hash(id) % 10 < 8)"
        moments = ", ".join(f"avg({name}), stddev_pop({name}), min({name}), max({name}), count({name})" for name in NUMBERS)
        start = time.perf_counter()
        connection.execute(f"SELECT {moments} FROM {train}").fetchall()
        for name in [*CATEGORIES, "label"]:
            connection.execute(f"SELECT {name}, count(*) FROM {train} GROUP BY ALL ORDER BY 2 DESC, 1").fetchall()
        statistics = time.perf_counter() - start
        connection.execute(f"SELECT id FROM read_parquet('{raw}/*.parquet') GROUP BY id HAVING count(*) > 1 LIMIT 1").fetchall()
        return {"job": "duckdb", "seconds": time.perf_counter() - start, "statistics": statistics}


def run_baseline_job(spark: SparkSession, raw: Path, output: Path) -> Row:
    """The job as an expert would write it, in the way of `against_by_hand`. Adaptive execution is off for its plans of many joins."""
    shutil.rmtree(output, ignore_errors=True)
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", 4 * cores)
    start = time.perf_counter()
    read = spark.read.parquet(str(raw)).withColumn("hash", F.xxhash64("id"))
    if not read.groupBy("id").count().where("count > 1").isEmpty():
        raise SystemExit("a key repeats")
    unique = time.perf_counter() - start
    bucket = F.pmod("hash", F.lit(10))
    table = read.withColumn("split", F.when(bucket < 8, "train").when(bucket < 9, "validation").otherwise("test"))
    train = table.where("split = 'train'")
    moments = [moment for name in NUMBERS for moment in (F.avg(name).alias(f"{name}_mean"), F.stddev_pop(name).alias(f"{name}_std"))]
    statistics = train.agg(*moments).first()
    assert statistics is not None
    pairs = F.explode(F.array(*[F.struct(F.lit(name).alias("column"), F.col(name).cast("string").alias("value")) for name in CATEGORIES]))
    counted = train.select(pairs.alias("pair")).groupBy("pair.column", "pair.value").count().where(F.col("count") >= MIN_COUNT).collect()
    fit = time.perf_counter() - start
    numbers = [((F.col(name) - statistics[f"{name}_mean"]) / statistics[f"{name}_std"]).cast("float").alias(name) for name in NUMBERS]
    encoded = table.select("split", "hash", F.col("label").cast("tinyint"), *numbers, *CATEGORIES)
    for name in CATEGORIES:
        words = sorted((row for row in counted if row["column"] == name), key=lambda row: (-row["count"], row["value"]))
        vocabulary = spark.createDataFrame([(row["value"], number + 1) for number, row in enumerate(words)], "value string, number int")
        joined = encoded.join(F.broadcast(vocabulary), encoded[name].cast("string") == vocabulary["value"], "left")
        encoded = joined.withColumn(name, F.coalesce("number", F.lit(0))).drop("value", "number")
    placed = encoded.repartition(4 * cores, "hash").sortWithinPartitions("split", "hash").drop("hash")
    placed.write.partitionBy("split").option("compression", "lz4_raw").parquet(str(output))
    seconds = time.perf_counter() - start
    spark.conf.unset("spark.sql.adaptive.enabled")
    return {"job": "spark by hand", "seconds": seconds, "statistics": fit - unique, "unique": unique, "write": seconds - fit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    add_options(parser)
    parser.set_defaults(cores="2")
    parser.add_argument("--memory", default="4g", help="of Spark's JVM")
    parser.add_argument("--peers", nargs="*", choices=("duckdb", "spark"), default=["duckdb", "spark"])
    parser.add_argument("--small", action="store_true", help="few rows, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.small:
        arguments.rows = SMALL_ROWS
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, arguments.memory)
    raw, small = generate(arguments.folder, arguments.rows), generate(arguments.folder, SMALL_ROWS)
    spark = session("benchmark")
    if not arguments.small:
        run_ours(small, arguments.folder, SMALL_ROWS)  # warm-up: compiles Spark's code, and starts Python's workers
    stages = run_ours(raw, arguments.folder, arguments.rows)
    show(f"ETL of {arguments.rows:,} rows in {arguments.memory}", stages)
    fit = next(float(row["seconds"] or 0) for row in stages if row["stage"] == "fit")
    table: list[Row] = [{"job": "ours", "seconds": stages[-1]["seconds"], "fit": fit}]
    if "duckdb" in arguments.peers:
        table.append(measure_duckdb(raw, spark.sparkContext.defaultParallelism))
        table[-1]["our fit"] = fit / float(table[-1]["seconds"] or 0)
    if "spark" in arguments.peers:
        if not arguments.small:
            run_baseline_job(spark, small, arguments.folder / "hand")
        table.append(run_baseline_job(spark, raw, arguments.folder / "hand"))
        table[-1]["ratio"] = float(stages[-1]["seconds"] or 0) / float(table[-1]["seconds"] or 0)
    show("Beside it", table)
    tables = {f"ETL of {arguments.rows:,} rows in {arguments.memory}": stages, "Beside it": table}
    print(save("etl-long", tables, package_versions("pyspark", "pyarrow", "numpy", "duckdb"), arguments.results))


if __name__ == "__main__":
    main()
