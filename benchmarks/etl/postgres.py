"""Measures reads of a PostgreSQL table by one task and by two, in turns, beside psql's COPY and Spark's JDBC, with seconds of processors.

    PGPASSWORD=… python -m benchmarks.etl.postgres --url postgresql://user@127.0.0.1:5432/database [--rows 3000000] [--turns 5]
                                                   [--jdbc postgresql.jar] [--results FOLDER]

The table `lockstep_benchmark` of that database is made once; its rows are read into nothing. The server's seconds of processors are those
of its processes, if it runs on this machine. Server and readers of one task keep more than one core busy, so on two cores two tasks gain at
most what these leave idle. Loops without a read, in one process and in two, show how much of two cores there is while others use them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.etl.options import submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.formats.postgres.address import connection_address
from pipelines.formats.postgres.parts import page_conditions, page_cuts
from pipelines.formats.postgres.server import execute, fetch, open_connection
from pipelines.formats.postgres.settings import PostgresTable
from pipelines.formats.postgres.table import Postgres
from pipelines.spark.session import session

TABLE = "lockstep_benchmark"
COLUMNS = "id bigint, amount float8, price numeric(12,2), name text, sold timestamptz, count int"
LOOPS = 60_000_000
VALUES = "i, i * 0.25, i * 0.01, md5(i::text), '2026-01-01'::timestamptz + i * interval '1 second', (i % 1000)::int"


@dataclass(frozen=True)
class Measured:
    """A read: its seconds, and seconds of processors that server and readers took for it."""

    wall: float
    server: float
    readers: float


Reader = Callable[[], Measured]


@dataclass(frozen=True)
class Stopwatch:
    """Measures calls; `server` is its process, if it runs on this machine."""

    server: psutil.Process | None

    def measure(self, call: Callable[[], Any]) -> Measured:
        before, start = self._processors(), time.perf_counter()
        call()
        wall, after = time.perf_counter() - start, self._processors()
        return Measured(wall, after[0] - before[0], after[1] - before[1])

    def _processors(self) -> tuple[float, float]:
        return processor_seconds(self.server), processor_seconds(psutil.Process())


def make_table(url: str, rows: int) -> None:
    """Make the table, unless it has so many rows."""
    connection = open_connection(url)
    execute(connection, f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS})")
    if fetch(connection, f"SELECT count(*) AS n FROM {TABLE}")[0]["n"] != rows:
        execute(connection, f"TRUNCATE {TABLE}")
        execute(connection, f"INSERT INTO {TABLE} SELECT {VALUES} FROM generate_series(1, {rows}) AS numbers(i)")
    connection.commit()
    connection.close()


def server_process(url: str) -> psutil.Process | None:
    """The server, if it runs on this machine."""
    connection = open_connection(url)
    backend = fetch(connection, "SELECT pg_backend_pid() AS pid")[0]["pid"]
    server = psutil.Process(backend).parent() if psutil.pid_exists(backend) and "postgres" in psutil.Process(backend).name() else None
    connection.close()
    return server


def processor_seconds(root: psutil.Process | None) -> float:
    """Of a process and all that it started, also of those that have ended."""
    seconds = 0.0
    for process in [root, *root.children(recursive=True)] if root else []:
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def read_ours(spark: SparkSession, watch: Stopwatch, url: str, tasks: int) -> Measured:
    """The read alone: the fingerprints are known before."""
    table = Postgres(TABLE, PostgresTable(url=url, table=TABLE, tasks=tasks))
    table.fingerprints(spark)
    return watch.measure(lambda: _drain(table.rows(spark).rows))


def identify_ours(spark: SparkSession, watch: Stopwatch, url: str, tasks: int) -> Measured:
    table = Postgres(TABLE, PostgresTable(url=url, table=TABLE, tasks=tasks))
    table.relation(spark)
    return watch.measure(lambda: table.fingerprints(spark))


def read_by_psql(watch: Stopwatch, url: str, conditions: list[str]) -> Measured:
    """A process for each range of pages, as tasks read them."""
    copies = [f"COPY (SELECT * FROM {TABLE} WHERE {condition}) TO STDOUT (FORMAT binary)" for condition in conditions]
    command = ["psql", connection_address(url), "--quiet", "--output=/dev/null", "--command"]

    def copy_all() -> None:
        processes = [subprocess.Popen([*command, copy], stdout=subprocess.DEVNULL) for copy in copies]
        if sum(process.wait() for process in processes):
            sys.exit("psql failed; see its message above")

    return watch.measure(copy_all)


def read_by_jdbc(spark: SparkSession, watch: Stopwatch, url: str, tasks: int, rows: int) -> Measured:
    parts = urlsplit(url)
    ranges = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": str(tasks)}
    address = f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}"
    options = {"url": address, "user": parts.username or "", "password": os.environ.get("PGPASSWORD", ""), "dbtable": TABLE}
    options |= {"fetchsize": "10000", "driver": "org.postgresql.Driver", **(ranges if tasks > 1 else {})}
    return watch.measure(lambda: _drain(spark.read.format("jdbc").options(**options).load()))


def loop(watch: Stopwatch, processes: int) -> Measured:
    """The same work in one process or shared by several: what other programs leave of the cores."""
    code = f"for _ in range({LOOPS // processes}): pass"

    def run_all() -> None:
        running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
        for process in running:
            process.wait()

    return watch.measure(run_all)


def _drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def readers(spark: SparkSession, url: str, rows: int, jdbc: str) -> dict[tuple[str, int], Reader]:
    """By name and number of tasks."""
    connection, watch = open_connection(url), Stopwatch(server_process(url))
    pages = fetch(connection, f"SELECT pg_relation_size('{TABLE}') / current_setting('block_size')::bigint AS n")[0]["n"]
    connection.close()
    by_tasks: dict[tuple[str, int], Reader] = {}
    for tasks in (1, 2):
        by_tasks["loop", tasks] = partial(loop, watch, tasks)
        by_tasks["ours, read", tasks] = partial(read_ours, spark, watch, url, tasks)
        by_tasks["ours, identify", tasks] = partial(identify_ours, spark, watch, url, tasks)
        by_tasks["psql COPY", tasks] = partial(read_by_psql, watch, url, page_conditions(page_cuts([pages], tasks)))
        if jdbc:
            by_tasks["Spark JDBC", tasks] = partial(read_by_jdbc, spark, watch, url, tasks, rows)
    return by_tasks


def compare(read_by_tasks: dict[tuple[str, int], Reader], turns: int) -> list[Row]:
    """Each reader once per turn, after a turn that is not counted."""
    figures: dict[tuple[str, int], list[Measured]] = {key: [] for key in read_by_tasks}
    for turn in range(turns + 1):
        for key, read in read_by_tasks.items():
            measured = read()
            if turn:
                figures[key].append(measured)
    return [_row(*key, figures[key], figures[key[0], 1]) for key in sorted(figures)]


def _row(name: str, tasks: int, figures: list[Measured], of_one_task: list[Measured]) -> Row:
    wall, server, client = (statistics.median(getattr(figure, part) for figure in figures) for part in ("wall", "server", "readers"))
    ratios = [alone.wall / shared.wall for alone, shared in zip(of_one_task, figures, strict=True)]
    row: Row = {"reader": name, "tasks": tasks, "seconds": wall, "server CPU s": server, "reader CPU s": client}
    row |= {"cores busy": (server + client) / wall, "faster than one task": statistics.median(ratios)}
    return row | {"least": min(ratios), "most": max(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of a database in which a table may be made")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--jdbc", default="", help="the driver's jar; without it, Spark's JDBC is not measured")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    jars = f"--jars {arguments.jdbc} " if arguments.jdbc else ""
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", jars + submit_arguments("2"))
    make_table(arguments.url, arguments.rows)
    rows = compare(readers(session("benchmark"), arguments.url, arguments.rows, arguments.jdbc), arguments.turns)
    title = f"{arguments.rows:,} rows of PostgreSQL, median of {arguments.turns} turns"
    show(title, rows)
    print(save("etl-postgres", {title: rows}, package_versions("pyspark", "pyarrow", "adbc-driver-postgresql"), arguments.results))


if __name__ == "__main__":
    main()
