"""Our ETL of many small pictures in class folders, beside the same pictures in one file, and a PySpark job written by hand.

    python benchmarks/etl_small_files.py [--pictures 60000] [--repeats 1] [--cores 2] [--small] [--folder FOLDER] [--results FOLDER]

The pictures: JPEG files of 28x28 pixels in ten folders, `pictures/5/00001.jpg`, made once. All jobs take the class from the
path, decode, shuffle, and write pixels and label. Ours also takes checksums, tells splits apart, quarantines what it cannot
decode, sorts by hashes, digests every row group, and logs an MLflow run; the job by hand takes any order within a partition.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from report import RESULTS, Row, save, show, versions_of

from pipelines.config import Config, parse
from pipelines.etl.run import run
from pipelines.etl.session import session

SIDE, CLASSES = 28, 10
JOBS = ("by hand, binaryFile", "ours, one file", "ours, class folders")


def generate(folder: Path, pictures: int) -> tuple[Path, Path]:
    """The folder of pictures, and one Parquet file with the same rows; made once."""
    files, single = folder / f"pictures-{pictures}", folder / f"pictures-{pictures}.parquet"
    if single.exists():
        return files, single
    random = np.random.default_rng(1)
    for label in range(CLASSES):
        (files / str(label)).mkdir(parents=True, exist_ok=True)
    written: dict[str, list[str | bytes]] = {"path": [], "content": []}
    for number in range(pictures):
        pixels = np.kron(random.integers(0, 256, (SIDE // 4, SIDE // 4)), np.ones((4, 4))).astype(np.uint8)
        stream = BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG")
        path = files / str(number % CLASSES) / f"{number:06}.jpg"
        path.write_bytes(stream.getvalue())
        written["path"].append(f"file:{path}")
        written["content"].append(stream.getvalue())
    pq.write_table(pa.table(written), single)
    return files, single


def config(table: dict[str, object], folder: Path) -> Config:
    return parse(
        {
            "name": "pictures",
            "source": {
                "tables": {"files": table},
                "query": "SELECT content AS image, CAST(element_at(split(path, '/'), -2) AS int) AS label FROM files",
                "expect": {"a class": f"label BETWEEN 0 AND {CLASSES - 1}"},
            },
            "dataset": {
                "path": str(folder / "ours"),
                "features": {"image": {"encoder": "image", "shape": [1, SIDE, SIDE]}},
                "target": {"label": "label"},
            },
            "task": {"kind": "vision"},
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "benchmark",
    )


def by_hand(spark: SparkSession, files: Path, output: Path) -> None:
    """With Spark's own settings for files, which ours changes in the session."""
    for setting in ("spark.sql.files.openCostInBytes", "spark.sql.sources.parallelPartitionDiscovery.parallelism"):
        spark.conf.unset(setting)
    read = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(files))
    label = F.element_at(F.split("path", "/"), -2).cast("tinyint")
    decoded = read.select("content", label.alias("label")).mapInArrow(_decoded, "image binary, label tinyint")
    shuffled = decoded.repartition(2 * spark.sparkContext.defaultParallelism, F.rand(seed=1))
    shuffled.write.option("compression", "lz4_raw").parquet(str(output))


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        pixels = [Image.open(BytesIO(value.as_py())).convert("L").tobytes() for value in batch.column("content")]
        yield pa.record_batch({"image": pa.array(pixels, pa.binary()), "label": batch.column("label")})


def measure(folder: Path, pictures: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, in turns."""
    files, single = generate(folder, pictures)
    tables: dict[str, dict[str, object]] = {
        "ours, one file": {"format": "parquet", "path": str(single)},
        "ours, class folders": {"format": "binaryFile", "path": str(files), "options": {"recursiveFileLookup": True}},
    }
    seconds: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(repeats):
        digests = set()
        for name, taken in seconds.items():
            shutil.rmtree(folder / "ours", ignore_errors=True)
            shutil.rmtree(folder / "hand", ignore_errors=True)
            spark = session("benchmark")
            start = time.perf_counter()
            if name in tables:
                digests.add(run(config(tables[name], folder)).digest)
            else:
                by_hand(spark, files, folder / "hand")
            taken.append(time.perf_counter() - start)
            print(f"{name}: {taken[-1]:.1f} s", flush=True)
        assert len(digests) == 1, "equal rows make equal digests"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cores", default="*")
    parser.add_argument("--small", action="store_true", help="a few pictures, to see that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "lockstep-benchmark-small-files", help="the pictures are kept here"
    )
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[{arguments.cores}] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false pyspark-shell"
    )
    pictures, repeats = (300, 1) if arguments.small else (arguments.pictures, arguments.repeats)
    if not arguments.small:  # a small round first: all jobs' code is compiled, and Python's workers are up
        measure(arguments.folder, 300, 1)
    seconds = measure(arguments.folder, pictures, repeats)
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    table: list[Row] = [
        {"job": name, "seconds": middle[name], "files/s": int(pictures / middle[name]), "ratio": middle[name] / middle[JOBS[0]]}
        for name in JOBS
    ]
    title = f"ETL of {pictures:,} pictures, median of {repeats}"
    show(title, table)
    print(save("etl_small_files", {title: table}, versions_of("pyspark", "pyarrow", "numpy"), arguments.results))


if __name__ == "__main__":
    sys.exit(main())
