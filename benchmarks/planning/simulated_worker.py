"""A process of a Gloo group that times messages, or a strategy's steps, and prints the seconds as JSON.

`time_messages` and `time_steps` start a group of them. One of them is
`python -m benchmarks.planning.simulated_worker RANK WORKERS RENDEZVOUS QUESTION`, the last as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.train.spread_worker import Case, create_case_strategy, random_rows, take_step
from pipelines.train.ordered_all_reduce import TreeAllReduce

SIZES = [2**power for power in range(10, 25, 2)]
"""Bytes of the messages of a sweep."""
REPEATS, WARM_UP = 15, 2


def time_messages(workers: int) -> dict[str, list[tuple[int, float]]]:
    """Bytes and median seconds of an all-reduce: `sockets` over Gloo, and `memory` as `ddp` and `exact` do on one machine."""
    (answer, *_) = _ask(workers, {"kind": "messages"})
    return {way: [(size, seconds) for size, seconds in points] for way, points in answer.items()}


def time_steps(workers: int, case: Case, train: dict[str, Any], steps: int) -> dict[str, float]:
    """Mean seconds of a step of the slowest worker, after WARM_UP steps; and the parameters of its part of the model."""
    answers = _ask(workers, {"kind": "steps", "case": asdict(case), "train": train, "steps": steps})
    return {name: max(answer[name] for answer in answers) for name in answers[0]}


def _ask(workers: int, question: dict[str, Any]) -> list[Any]:
    """The answers of all processes, by rank."""
    with tempfile.TemporaryDirectory(prefix="simulated-") as folder:
        command = [sys.executable, "-m", "benchmarks.planning.simulated_worker"]
        common = [str(workers), f"{folder}/rendezvous", json.dumps(question)]
        processes = [subprocess.Popen([*command, str(rank), *common], stdout=subprocess.PIPE, text=True) for rank in range(workers)]
        answers = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{question} on {workers} workers failed")
    return [json.loads(answer.splitlines()[-1]) for answer in answers]


def _message_seconds(rank: int, workers: int) -> dict[str, list[tuple[int, float]]]:
    blocks = [range(number, number + 1) for number in range(workers)]
    tree = TreeAllReduce(blocks, workers, rank, torch.device("cpu"), max(SIZES))
    ways: dict[str, Callable[[torch.Tensor], object]] = {"sockets": dist.all_reduce, "memory": lambda tensor: tree.reduce([tensor])}
    if not tree.is_in_memory:
        del ways["memory"]
    return {name: [(size, _median_seconds(way, torch.zeros(size // 4))) for size in SIZES] for name, way in ways.items()}


def _median_seconds(all_reduce: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> float:
    seconds = []
    for _ in range(WARM_UP + REPEATS):
        dist.barrier()
        started = time.perf_counter()
        all_reduce(tensor)
        seconds.append(time.perf_counter() - started)
    return median(seconds[WARM_UP:])


def _step_seconds(rank: int, workers: int, case: Case, train: dict[str, Any], steps: int) -> dict[str, float]:
    strategy = create_case_strategy(case, rank, workers, train)
    rows = random_rows(case, strategy.mesh.replica)
    batch: Any = [rows] if train.get("strategy", {}).get("kind") in ("exact", "local_sgd") else rows  # by shard, or by replica
    for number in range(WARM_UP):
        take_step(strategy, batch, number)
    dist.barrier()
    started = time.perf_counter()
    for number in range(steps):
        take_step(strategy, batch, WARM_UP + number)
    seconds = (time.perf_counter() - started) / steps
    return {"seconds": seconds, "parameters": float(sum(parameter.numel() for parameter in strategy.model.parameters()))}


def main() -> None:
    rank, workers, rendezvous, question = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{rendezvous}", timedelta(seconds=300), workers, rank)
    answer: object
    if question["kind"] == "messages":
        answer = _message_seconds(rank, workers)
    else:
        answer = _step_seconds(rank, workers, Case(**question["case"]), question["train"], question["steps"])
    print(json.dumps(answer), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
