"""Measures compression and local steps over a slow link: two workers on two network namespaces. Needs root, and iproute2's ip and tc.

    python -m benchmarks.network.slow_link [--small] [--ways NAME ...] [--megabits 100] [--results FOLDER]

Each way is measured over the link as fast as memory, which gives the seconds of computation, and over the slow link, with the
bytes that the interface counts. "allowed" is computation plus bytes x 8 / rate, one after the other. By the ring, each of two
workers sends 4 bytes per parameter and step without compression, and receives as many.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.network.case import CASE
from benchmarks.network.link import ADDRESSES, INTERFACES, enter_command, link, missing_requirement, shape
from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import case_config, write_version
from pipelines.config.train.strategy import STRATEGIES

INNER_STEPS = 16
LOCAL = {"replicas": 2, "inner_steps": INNER_STEPS}


@dataclass(frozen=True)
class Way:
    settings: dict[str, Any]
    """Of `train`, or the name of a hook of torch's."""
    warm_up: int = CASE.warm_up
    steps: int = CASE.steps


WAYS = {
    "ddp": Way({}),
    "ddp, bf16": Way({"strategy": {"kind": "ddp", "compression": "bf16"}}),
    "ddp, powersgd, rank 4": Way({"strategy": {"kind": "ddp", "compression": {"kind": "powersgd", "rank": 4}}}, steps=16),
    "ddp, powersgd, rank 16": Way({"strategy": {"kind": "ddp", "compression": {"kind": "powersgd", "rank": 16}}}, steps=16),
    "ddp, topk, 1 %": Way({"strategy": {"kind": "ddp", "compression": {"kind": "topk", "share": 0.01}}}, steps=16),
    "ddp, topk, 10 %": Way({"strategy": {"kind": "ddp", "compression": {"kind": "topk", "share": 0.1}}}, steps=16),
    "local_sgd": Way({"strategy": {"kind": "local_sgd", **LOCAL}}, INNER_STEPS, 2 * INNER_STEPS),
    "local_sgd, int8": Way({"strategy": {"kind": "local_sgd", **LOCAL, "deltas": "int8"}}, INNER_STEPS, 2 * INNER_STEPS),
    "torch's DDP": Way({"torch": "none"}),
    "torch's fp16_compress_hook": Way({"torch": "fp16_compress_hook"}),
    "torch's powerSGD_hook": Way({"torch": "powerSGD_hook"}, steps=16),
}


def measure_way(folder: Path, way: Way) -> dict[str, float]:
    """Seconds per step, and the bytes that a worker sends: the larger of both workers'."""
    numbers = [str(way.warm_up), str(way.steps), json.dumps(way.settings)]
    processes = []
    for rank in (0, 1):
        command = [sys.executable, "-m", "benchmarks.network.worker", str(rank), ADDRESSES[0], INTERFACES[rank], str(folder), *numbers]
        processes.append(subprocess.Popen([*enter_command(rank), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    answers = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, answers, strict=True):
        if process.returncode:
            sys.exit(f"{way.settings}: exit {process.returncode}\n{errors[-4_000:]}")
    results = [json.loads(output.splitlines()[-1]) for output, _ in answers]
    return {key: max(result[key] for result in results) for key in ("seconds", "bytes")}


def row(folder: Path, name: str, way: Way, megabits: int) -> Row:
    shape(None)
    fast = measure_way(folder, way)
    shape(megabits)
    slow = measure_way(folder, way)
    allowed = fast["seconds"] + slow["bytes"] * 8 / (megabits * 1e6)
    return {
        "way": name,
        "computation, s": fast["seconds"],
        "MB sent": slow["bytes"] / 1e6,
        "allowed, s": allowed,
        "step, s": slow["seconds"],
        "rows/s": CASE.global_batch / slow["seconds"],
        "of allowed": allowed / slow["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few ways and steps, to test that it runs")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--megabits", type=int, default=100)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if lacking := missing_requirement():
        sys.exit(f"slow_link: {lacking}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="slow-link-") as text, link():
        write_version(CASE, case_config(CASE, Path(text)))
        for name in arguments.ways:
            way = WAYS[name]
            if STRATEGIES.expand(way.settings.get("strategy", {}))["kind"] not in STRATEGIES.by_name:
                print(f"{name}: skipped, there is no such strategy", flush=True)
            elif not arguments.small or name in ("ddp", "ddp, topk, 1 %"):
                rows.append(row(Path(text), name, replace(way, warm_up=1, steps=2) if arguments.small else way, arguments.megabits))
                rows[-1]["x ddp"] = rows[-1]["rows/s"] / rows[0]["rows/s"]  # type: ignore[operator]
                print(rows[-1], flush=True)
    title = f"two workers, {arguments.megabits} Mbit/s, MLP 4 x 1,800 on 100 columns, {CASE.global_batch} rows a step"
    show(title, rows)
    print(save("slow-link", {title: rows}, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()
