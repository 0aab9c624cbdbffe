"""Measures ETL of many small files against the same rows in one file, and against a hand-written PySpark job.

Start-up is included: each job is measured in a new process, from its first import to its end. With `--small`, all run in this one.

    python -m benchmarks.etl.small_files [--kind pictures|texts] [--files 60000] [--repeats 1] [--cores 2] [--small]
                                         [--folder FOLDER] [--results FOLDER]

The pictures are JPEG files of 28x28 pixels in ten folders, `pictures/5/000015.jpg`, and the folder is the class. The texts are
files of 20 to 800 words, about 3 KB, and the first line is the class. All files are generated once.

All jobs decode the pictures, or split the texts into words and number the first 64; then they shuffle, and write features and
label. Ours also computes checksums, makes splits, fits its vocabulary on the training split, quarantines what it cannot
decode, sorts by hashes, digests every row group, and logs an MLflow run. The hand-written job leaves the order within a
partition to Spark, and numbers a word by its hash.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.etl.options import FOLDER, add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import parse
from pipelines.etl.run import run

SIDE, CLASSES, WORDS = 28, 10, 64
ITSELF = (sys.executable, "-m", "benchmarks.etl.small_files")
JOBS = ("by hand", "ours, one file", "ours, many files")
FILES = {"pictures": 60_000, "texts": 20_000}


def generate(folder: Path, kind: str, files: int) -> tuple[Path, Path]:
    """Write a folder of files, and one Parquet file with the same rows, unless they are there; they depend only on the arguments."""
    raw, single = folder / f"{kind}-{files}", folder / f"{kind}-{files}.parquet"
    if single.exists():
        return raw, single
    random, content = np.random.default_rng(1), {"pictures": _picture, "texts": _text}[kind]
    written: dict[str, list[str | bytes]] = {"path": [], "content": []}
    for number in range(files):
        path = raw / str(number % CLASSES) / f"{number:06}.{'jpg' if kind == 'pictures' else 'txt'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(random, number % CLASSES))
        written["path"].append(f"file:{path}")
        written["content"].append(path.read_bytes())
    pq.write_table(pa.table(written), single)
    return raw, single


def _picture(random: np.random.Generator, label: int) -> bytes:
    pixels = np.kron(random.integers(0, 256, (SIDE // 4, SIDE // 4)), np.ones((4, 4))).astype(np.uint8)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def _text(random: np.random.Generator, label: int) -> bytes:
    """Words out of 20,000, twelve per line; the n-th has a frequency of about 1 / n."""
    numbers = np.exp(random.random(random.integers(20, 800)) * np.log(20_000)).astype(int)
    words = [f"word{number}" for number in numbers]
    return "\n".join([str(label), *(" ".join(words[start : start + 12]) for start in range(0, len(words), 12))]).encode()


def run_ours(kind: str, job: str, raw: Path, single: Path, folder: Path) -> None:
    table: dict[str, Any] = {"format": "parquet", "path": str(single)}
    content, label = "content AS image", "element_at(split(path, '/'), -2)"
    if kind == "texts":
        content, label = "decode(content, 'utf-8')", "substring_index(decode(content, 'utf-8'), '\n', 1)"
    if job == "ours, many files" and kind == "texts":
        table, content, label = {"format": "text", "options": {"wholetext": True}}, "value", "substring_index(value, '\n', 1)"
    elif job == "ours, many files":
        table = {"format": "binaryFile", "options": {"recursiveFileLookup": True}}
    feature = {"image": {"encoder": "image", "shape": [1, SIDE, SIDE]}}
    if kind == "texts":
        content, feature = f"{content} AS text", {"text": {"encoder": "sequence", "length": WORDS}}
    values = {
        "name": kind,
        "source": {
            "tables": {"files": {"path": str(raw), **table}},
            "query": f"SELECT {content}, CAST({label} AS int) AS label FROM files",
            "expect": {"a class": f"label BETWEEN 0 AND {CLASSES - 1}"},
        },
        "dataset": {"path": str(folder / "ours"), "features": feature, "target": {"label": "label"}},
        "task": {"kind": "vision" if kind == "pictures" else "text"},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }
    run(parse(values, "benchmark"))


def run_baseline_job(kind: str, raw: Path, output: Path) -> None:
    spark = SparkSession.builder.appName("by hand").config("spark.sql.execution.arrow.pyspark.enabled", "true").getOrCreate()
    rows = (_pictures_by_hand if kind == "pictures" else _texts_by_hand)(spark, str(raw))
    shuffled = rows.repartition(2 * spark.sparkContext.defaultParallelism, F.rand(seed=1))
    shuffled.write.option("compression", "lz4_raw").parquet(str(output))


def _pictures_by_hand(spark: SparkSession, raw: str) -> DataFrame:
    read = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(raw)
    label = F.element_at(F.split("path", "/"), -2).cast("tinyint")
    return read.select("content", label.alias("label")).mapInArrow(_decode_batches, "image binary, label tinyint")


def _texts_by_hand(spark: SparkSession, raw: str) -> DataFrame:
    read = spark.read.text(raw, wholetext=True, recursiveFileLookup=True)
    words = F.slice(F.split("value", r"\s+"), 1, WORDS)
    numbers = F.transform(words, lambda word: F.pmod(F.xxhash64(word), F.lit(2**16)).cast("int"))
    return read.select(numbers.alias("text"), F.substring_index("value", "\n", 1).cast("tinyint").alias("label"))


def _decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        pixels = [Image.open(BytesIO(value.as_py())).convert("L").tobytes() for value in batch.column("content")]
        yield pa.record_batch({"image": pa.array(pixels, pa.binary()), "label": batch.column("label")})


def measure(folder: Path, kind: str, files: int, repeats: int, small: bool) -> dict[str, list[float]]:
    """Seconds of each job, run alternately."""
    places = generate(folder, kind, files)
    seconds: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(repeats):
        digests = set()
        for name, job_seconds in seconds.items():
            for output in ("ours", "hand"):
                shutil.rmtree(folder / output, ignore_errors=True)
            command = [*ITSELF, "--job", name, "--kind", kind, "--files", str(files), "--folder", str(folder)]
            start = time.perf_counter()
            run_here(name, kind, *places, folder) if small else subprocess.run(command, check=True)
            job_seconds.append(time.perf_counter() - start)
            digests |= {json.loads(manifest.read_bytes())["digest"] for manifest in (folder / "ours").glob("*/manifest.json")}
            print(f"{name}: {job_seconds[-1]:.1f} s", flush=True)
        assert len(digests) == 1, "equal rows make equal digests"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(FILES), default="pictures")
    parser.add_argument("--files", type=int, help="by default 60,000 pictures, or 20,000 texts")
    parser.add_argument("--repeats", type=int, default=1)
    add_options(parser, FOLDER.with_name("lockstep-benchmark-small-files"))
    parser.add_argument("--job", choices=JOBS, help="run only this job, once")
    parser.add_argument("--small", action="store_true", help="few files, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", submit_arguments(arguments.cores))
    kind, folder = arguments.kind, arguments.folder
    files, repeats = (300, 1) if arguments.small else (arguments.files or FILES[kind], arguments.repeats)
    if arguments.job:
        run_here(arguments.job, kind, *generate(folder, kind, files), folder)
        return
    seconds = measure(folder, kind, files, repeats, arguments.small)
    middle = {name: statistics.median(job_seconds) for name, job_seconds in seconds.items()}
    table: list[Row] = [
        {"job": name, "seconds": middle[name], "files/s": int(files / middle[name]), "ratio": middle[name] / middle[JOBS[0]]}
        for name in JOBS
    ]
    title = f"ETL of {files:,} {kind}, starts included, median of {repeats}"
    show(title, table)
    print(save(f"etl-small-{kind}", {title: table}, package_versions("pyspark", "pyarrow", "numpy"), arguments.results))


def run_here(job: str, kind: str, raw: Path, single: Path, folder: Path) -> None:
    if job == "by hand":
        run_baseline_job(kind, raw, folder / "hand")
    else:
        run_ours(kind, job, raw, single, folder)


if __name__ == "__main__":
    main()
