"""Measures strategy `sharding` on Gloo: a worker's memory and its speed, for GPTs, with `ddp` beside each.

    python -m benchmarks.train.sharded [--tables memory activations speed] [--small] [--results FOLDER]

memory        a worker's resident bytes above those of a process that has trained a tiny model, and so has loaded the same code: at most
              while it is built, between steps, and at most in a step. `ddp` is measured on one worker, which has no buffers for
              messages; the last column compares the largest number of each. Every worker computes equally many rows; those of
              `tensor` and `pipeline` compute the same ones.
activations   what a step needs beside that, on two workers, with each kind of activation checkpointing; workers of `context` compute a
              row together.
speed         two workers with one thread each, by turns, on the same rows of a step.

Prints a table of each, and writes them to sharded-<machine>-<date>.json in the folder, or if not all are measured, to a file with their
names, such as sharded-speed-<machine>-<date>.json.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.spread_worker import Case, count_readers, measure_workers

MB = 2**20
TABLES = ("memory", "activations", "speed")
LARGE = Case(layers=12, width=768, vocabulary=10_000, context=64, rows=2)
MIDDLE = Case(layers=8, width=512, vocabulary=6_400, context=128, rows=8)
LONG = Case(layers=8, width=256, vocabulary=256, context=2_048, rows=1)
SMALL = Case(layers=2, width=128, vocabulary=256, context=32, rows=2)


def sharding(**parallel: Any) -> dict[str, Any]:
    return {"strategy": {"kind": "sharded", **parallel}}


WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (1, {}),
    "shard 2": (2, sharding()),
    "shard 4": (4, sharding()),
    "2 replicas, shard 2": (4, sharding(replicate=2)),
    "tensor 2": (2, sharding(tensor=2)),
    "pipeline 2": (2, sharding(pipeline=2)),
    "context 2": (2, sharding(context=2)),
}
"""Workers, and settings of `train`."""


def memory(case: Case) -> list[Row]:
    rows: list[Row] = []
    ddp_numbers: dict[str, float] = {}
    for name, (workers, train) in WAYS.items():
        numbers = measure_workers(workers, case, train)
        ddp_numbers = ddp_numbers or numbers
        peak, of_ddp = (max(way_numbers["built"], way_numbers["peak"]) for way_numbers in (numbers, ddp_numbers))
        sizes = {"building, MB": numbers["built"], "between steps, MB": numbers["kept"], "peak of a step, MB": numbers["peak"]}
        in_mb = {name: size / MB for name, size in sizes.items()}
        rows.append({"way": name, "M parameters": ddp_numbers["parameters"] / 1e6, **in_mb, "of ddp's": peak / of_ddp})
        print(rows[-1], flush=True)
    return rows


def activations(case: Case) -> list[Row]:
    ways = {"ddp": {}} | {kind: sharding(activation_checkpointing=kind) for kind in ("none", "selective", "full")}
    ways |= {
        "none, context 2": sharding(context=2),
        "full, context 2": sharding(context=2, activation_checkpointing="full"),
    }
    rows: list[Row] = []
    ddp_numbers: dict[str, float] = {}
    for name, train in ways.items():
        numbers = measure_workers(2, case, train)
        ddp_numbers = ddp_numbers or numbers
        size, of_ddp = (way_numbers["peak"] - way_numbers["kept"] for way_numbers in (numbers, ddp_numbers))
        shares = {"of ddp's": size / of_ddp, "step, s": numbers["seconds"], "x ddp": ddp_numbers["seconds"] / numbers["seconds"]}
        rows.append({"activation_checkpointing": name, "in a step, MB": size / MB, **shares})
        print(rows[-1], flush=True)
    return rows


def speed(case: Case, turns: int) -> list[Row]:
    ways = {"ddp": {}} | {name: train for name, (workers, train) in WAYS.items() if workers == 2}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, train in ways.items():
            case_of_way = replace(case, rows=case.rows * 2 // count_readers(2, train))
            seconds[name].append(measure_workers(2, case_of_way, train)["seconds"])
    by_ddp = median(seconds["ddp"])
    return [
        {"way": name, "step, s": median(way_seconds), "rows/s": 2 * case.rows / median(way_seconds), "x ddp": by_ddp / median(way_seconds)}
        for name, way_seconds in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="which to measure; by default all")
    parser.add_argument("--small", action="store_true", help="small models, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    large, middle, long = (SMALL, SMALL, replace(SMALL, context=256)) if arguments.small else (LARGE, MIDDLE, LONG)
    tables_by_name: dict[str, Callable[[], tuple[str, list[Row]]]] = {
        "memory": lambda: (f"resident bytes of a worker, {large}", memory(large)),
        "activations": lambda: (f"two workers, {long}", activations(long)),
        "speed": lambda: (f"two workers of one thread, {middle}", speed(middle, 1 if arguments.small else 3)),
    }
    tables = dict(tables_by_name[name]() for name in arguments.tables)
    for title, rows in tables.items():
        show(title, rows)
    named = [] if set(arguments.tables) == set(TABLES) else arguments.tables
    print(save("-".join(["sharded", *named]), tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()
