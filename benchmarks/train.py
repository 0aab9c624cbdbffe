"""Our worker loop beside a bare DDP script and beside Ray's own way: the same models, rows, workers and threads.

    python benchmarks/train.py [--rounds 5] [--small] [--cases CASE ...] [--results FOLDER]

Ours reads Parquet, in a whole run under Ray Train that logs to MLflow. The bare script runs under torchrun, on shuffled
tensors that are in memory already. Ray's own way reads the same Parquet through Ray Data, with its local shuffle.
Every number is of processes of its own; who goes first changes with the round, and ratios are of a round's measurements.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from operator import truediv
from pathlib import Path

from report import RESULTS, Row, save, show, versions_of
from train_cases import CASES, WORKERS

HERE = Path(__file__).parent
OURS, BARE, RAY = "ours", "bare DDP, in memory", "Ray Data, prepare_model"
LIMIT_SECONDS = 600


def measure(who: str, case: str, threads: int, small: bool = False) -> float:
    """Rows/s, all workers together."""
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as folder:
        if who == BARE:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS)]
            command = [*torchrun, str(HERE / "train_bare.py"), case, str(threads)]
        else:
            command = [sys.executable, str(HERE / "train_on_ray.py"), "ours" if who == OURS else "ray", case, str(threads), folder]
        command += ["small"] if small else []
        environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{HERE}", "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode:
        sys.exit(f"{who}, {case}: exit {done.returncode}\n{done.stderr[-4_000:]}")
    answer = next(line for line in done.stdout.splitlines() if line.startswith('{"rows_per_second"'))  # Ray may print after it
    rate: float = json.loads(answer)["rows_per_second"]
    print(f"{case}: {who} {rate:,.0f} rows/s", file=sys.stderr, flush=True)
    return rate


def compared(case: str, rounds: int, threads: int, small: bool) -> list[Row]:
    """Medians over the rounds, and ours in relation to each. Ray's own way, several times slower, is in the first round only."""
    rates: dict[str, list[float]] = {OURS: [], BARE: [], RAY: []}
    for number in range(rounds):
        for who in (RAY, BARE, OURS) if not number else (OURS, BARE) if number % 2 else (BARE, OURS):
            rates[who].append(measure(who, case, threads, small))
    return [
        {
            "model": case,
            "loop": who,
            "rows/s": round(statistics.median(found)),
            "ours / it": statistics.median(map(truediv, rates[OURS], found)),
        }
        for who, found in rates.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    threads = max(1, len(os.sched_getaffinity(0)) // WORKERS)
    title = f"training, {WORKERS} workers of {threads} thread{'s' if threads > 1 else ''}, medians of {arguments.rounds} rounds"
    rows = [row for case in arguments.cases for row in compared(case, arguments.rounds, threads, arguments.small)]
    show(title, rows)
    print(save("train", {title: rows}, versions_of("torch", "ray", "mlflow", "pyarrow"), arguments.results))


if __name__ == "__main__":
    main()
