"""Measures our loader against its peers: with the same rows, machine and cores, shuffled. Needs Linux.

    python -m benchmarks.loader.against_peers [--small] [--no-peers] [--tables narrow tensors …] [--results FOLDER]

Every number is measured in a new process, with the files in the page cache. The first run installs the peers into .venv-peers.
MosaicML Streaming and LitData read the first tenth of the narrow rows, in their own formats with 3 fields per row instead of
40; both are in their favour. LitData is also measured on Parquet.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.loader.bench import ALL_CORES, PEERS, ROW_BY_ROW, Bench, lockstep
from benchmarks.loader.processes import install_peers, measure, peers_versions
from benchmarks.loader.rows import KINDS
from benchmarks.report import RESULTS, Row, package_versions, save, show


def narrow(bench: Bench) -> list[Row]:
    """13 floats, 26 integers and a label; batches of 4,096, 8 shards, row groups of 4 MiB; peers on all cores only."""
    path, batch = bench.data("narrow", bench.rows("narrow")), KINDS["narrow"].batch
    table: list[Row] = []
    for cores in sorted({ALL_CORES if bench.small else 1, ALL_CORES}):
        rates, memory, took = _ours(path, batch, cores)
        by_hand = lockstep("iterable", cores=cores, folder=path, batch=batch, seconds=bench.seconds("narrow"))
        rates["torch IterableDataset over pyarrow, unshuffled"] = by_hand.get("rows_per_second")
        for peer in bench.peers if cores == ALL_CORES else ():
            _peer(bench, peer, "narrow", cores, rates, memory, took)
        table += [{"cores": cores, **row} for row in _comparison_rows(rates, memory, took)]
    return table


def tensors(bench: Bench) -> list[Row]:
    """Images and token windows, on one core."""
    table: list[Row] = []
    for kind in (kind for kind in KINDS if kind != "narrow"):
        rates, memory, took = _ours(bench.data(kind, bench.rows(kind)), KINDS[kind].batch, 1)
        for peer in bench.peers:
            if peer != "LitData, Parquet":  # it does not support tensors in Parquet
                _peer(bench, peer, kind, 1, rates, memory, took)
        table += [{"rows": kind, **row} for row in _comparison_rows(rates, memory, took)]
    return table


Figures = dict[str, float | None]


def _ours(path: str, batch: int, cores: int) -> tuple[Figures, Figures, Figures]:
    """Rates, peak memory and seconds of conversion, by loader."""
    cached, uncached = (lockstep("epochs", cores=cores, folder=path, batch=batch, cache=cache) for cache in (True, False))
    rates = {
        "bare Parquet decode": lockstep("bare", cores=cores, folder=path).get("rows_per_second"),
        "Lockstep, first epoch": cached.get("first"),
        "Lockstep, later epochs": cached.get("later"),
        "Lockstep, cache off": uncached.get("later"),
        "Lockstep, cache off, first epoch": uncached.get("first"),
    }
    memory = {"Lockstep, later epochs": cached.get("memory_bytes"), "Lockstep, cache off": uncached.get("memory_bytes")}
    return rates, memory, {}


def _peer(bench: Bench, peer: str, kind: str, cores: int, rates: Figures, memory: Figures, took: Figures) -> None:
    path, took[peer] = bench.convert(peer, kind)
    measurement = measure(
        PEERS[peer], "throughput", cores=cores, peer=peer, path=path, batch=KINDS[kind].batch, seconds=bench.seconds(kind)
    )
    rates[peer], memory[peer] = measurement.get("rows_per_second"), measurement.get("memory_bytes")


def _comparison_rows(rates: Figures, memory: Figures, took: Figures) -> list[Row]:
    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above and below else None

    return [
        {
            "loader": name,
            "rows/s": rate,
            "of bare decode": ratio(rate, rates["bare Parquet decode"]),
            "Lockstep later / it": ratio(rates["Lockstep, later epochs"], rate),
            "cache off / it": ratio(rates["Lockstep, cache off"], rate),
            "memory MiB": memory[name] / 2**20 if memory.get(name) else None,
            "converted in s": took.get(name),
        }
        for name, rate in rates.items()
    ]


def first_epochs(bench: Bench) -> list[Row]:
    """Two GiB of each kind, and 8 of the largest rows, without a cache, on one core. Medians of several processes, each with one first
    epoch. It also fills the loader's memory, whose size does not depend on the data's."""
    table: list[Row] = []
    for kind, gib in [*((kind, 2) for kind in KINDS), ("image 3x224x224", 8)]:
        rows_kind = KINDS[kind]
        rows = rows_kind.small_rows if bench.small else gib * 2**30 // rows_kind.row_bytes
        path = bench.data(kind, rows)
        epochs = [lockstep("epochs", cores=1, folder=path, batch=rows_kind.batch, cache=False) for _ in range(1 if bench.small else 5)]
        first, later = (statistics.median(epoch_rates[name] for epoch_rates in epochs if epoch_rates) for name in ("first", "later"))
        ratio = statistics.median(epoch_rates["first"] / epoch_rates["later"] for epoch_rates in epochs if epoch_rates)
        table.append({"rows": kind, "count": rows, "first epoch, rows/s": first, "later epochs, rows/s": later, "first / later": ratio})
    return table


def resume(bench: Bench) -> list[Row]:
    """Seconds from opening the narrow rows to the first batch, on one core; ours is the median of three processes."""
    path, batch = bench.data("narrow", bench.rows("narrow")), KINDS["narrow"].batch
    late = int(0.99 * bench.rows("narrow")) // batch * batch

    def ours_at(share: float) -> float | None:
        seconds = [
            lockstep("resume", cores=1, folder=path, batch=batch, share=share).get("seconds") for _ in range(1 if bench.small else 3)
        ]
        return statistics.median(seconds) if None not in seconds else None

    def iterable_seconds(skip: int) -> float | None:
        return lockstep("iterable_resume", cores=1, folder=path, batch=batch, skip=skip).get("seconds")

    figures = {
        "Lockstep": (ours_at(0), ours_at(0.99)),
        "torch IterableDataset over pyarrow, skipping": (iterable_seconds(0), iterable_seconds(late)),
    }
    for peer in bench.peers:
        skipped_rows = late // 10 // batch * batch if peer in ROW_BY_ROW else late
        at = partial(measure, PEERS[peer], "resume", cores=1, peer=peer, path=bench.convert(peer, "narrow")[0], batch=batch)
        figures[peer] = at(rows=0).get("seconds"), at(rows=skipped_rows).get("seconds")
    return [
        {"loader": name, "at 0 %, s": start, "at 99 %, s": end, "ratio": end / start if start and end else None}
        for name, (start, end) in figures.items()
    ]


def memory(bench: Bench) -> list[Row]:
    """Growth of a worker's memory while it reads equally many rows of two datasets, without a cache; row groups of 1 MiB, 32 MiB
    read ahead."""
    table: list[Row] = []
    for rows in (bench.rows("narrow") // 10, bench.rows("narrow")):
        path = bench.data("narrow", rows, row_group_bytes=2**20)
        measurement = lockstep("memory", cores=1, folder=path, batch=KINDS["narrow"].batch, rows=bench.rows("narrow"))
        peak, bound = (measurement[name] / 2**20 if measurement else None for name in ("peak_bytes", "bound_bytes"))
        table.append({"rows": rows, "peak MiB": peak, "stated bound MiB": bound})
    return table


def planning(bench: Bench) -> list[Row]:
    """Seconds to start inside an epoch of a simulated dataset of 100,000 row groups."""
    row_groups = 1_000 if bench.small else 100_000
    return [
        {
            "start at": f"{share:.0%}",
            "row groups": row_groups,
            **_seconds(lockstep("planning", cores=1, row_groups=row_groups, share=share)),
        }
        for share in (0, 0.99)
    ]


def _seconds(measurement: dict[str, Any]) -> Row:
    return {f"{step}, s": measurement.get(f"{step}_seconds") for step in ("open", "plan", "place")}


TABLES: dict[str, Callable[[Bench], list[Row]]] = {
    table.__name__: table for table in (narrow, resume, memory, planning, tensors, first_epochs)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows, to test that it runs")
    parser.add_argument("--no-peers", action="store_true", help="only ours, bare decode and the hand-written loader")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    versions = package_versions("torch", "pyarrow", "numpy")
    if not arguments.no_peers:
        install_peers()
        versions |= peers_versions("torch", "pyarrow", "numpy", "ray", "datasets", "mosaicml-streaming", "litdata")
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, arguments.small, [] if arguments.no_peers else list(PEERS))
        for name in arguments.tables:
            tables[name] = TABLES[name](bench)
            show(f"{name}: {TABLES[name].__doc__}", tables[name])
            saved = save("loader", tables, versions, arguments.results)  # so that an interrupted run keeps what it has measured
    print(f"\n{saved}")


if __name__ == "__main__":
    main()
