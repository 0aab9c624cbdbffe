"""Measures our training against a bare DDP script and against Ray Data: with the same models, rows, workers and threads.

    python -m benchmarks.train.against_bare [--launches 4] [--turns 8] [--small] [--no-peers] [--cases CASE ...] [--results FOLDER]

Ours reads Parquet, in a whole run under Ray Train that logs to MLflow, and once more under torchrun, to see what Ray and
MLflow cost. The bare script runs under torchrun, on shuffled tensors that are already in memory. The three take turns, and a
ratio compares consecutive turns. All are launched several times, since ratios hardly vary within a launch, but by some
hundredths between launches. The peer runs before them: Ray Data reads the same Parquet, with its local shuffle.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from signal import SIGTERM, signal
from sqlite3 import OperationalError, connect

from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import CASES, WORKERS, find_case
from benchmarks.turns import Points, rates, start_program
from pipelines.launch.cluster import WORKERS_ENVIRONMENT

ROOT = Path(__file__).parents[2]
ON_RAY = (sys.executable, "-m", "benchmarks.train.on_ray")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS))
LIMIT_SECONDS = 600
TURN_SECONDS = 6.0


def measure_in_turns(name: str, threads: int, turns: int, small: bool) -> list[list[float]]:
    """Rows/s of all workers in every turn: of ours, of the bare script, and of ours without Ray."""
    case, common_arguments = find_case(name, small), [name, str(threads)]
    more, variables = ["small"] if small else [], environment(threads)
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as text:
        folder, bare_log, plain_log = Path(text), Path(text) / "bare.log", Path(text) / "plain.log"
        ours_command = [*ON_RAY, "ours", *common_arguments, text, *more]
        bare_command = [*TORCHRUN, "-m", "benchmarks.train.bare", *common_arguments, *more]
        plain_command = [*TORCHRUN, "-m", "benchmarks.train.without_ray", *common_arguments, f"{text}/plain", *more]
        with (
            start_program(ours_command, variables, folder / "ours.log", lambda: points_from_mlflow(folder), case.warm_up) as first,
            start_program(bare_command, variables, bare_log, lambda: points_in_log(bare_log), case.warm_up) as second,
            start_program(
                plain_command, {**variables, **WORKERS_ENVIRONMENT}, plain_log, lambda: points_in_log(plain_log), case.warm_up
            ) as third,
        ):
            steps_per_second = rates([first, second, third], turns, TURN_SECONDS)
    return [[steps * case.global_batch for steps in turn] for turn in steps_per_second]


def points_from_mlflow(folder: Path) -> Points:
    """The points of our curves in MLflow."""
    query = "select timestamp / 1000.0, step from metrics where key = 'train/step_seconds' order by step"
    try:
        with closing(connect(f"file:{folder}/mlflow.db?mode=ro", uri=True)) as database:
            return list(database.execute(query))
    except OperationalError as error:
        if "locked" in str(error):
            raise
        return []  # MLflow is still creating the table


def points_in_log(output: Path) -> Points:
    """The points that a script printed."""
    lines = [line.split() for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(float(line[1]), int(line[2])) for line in lines if line[:1] == ["point"]]


def measure_ray_data(name: str, threads: int, small: bool) -> float:
    """Rows/s of Ray Data with a prepared model."""
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as folder:
        command = [*ON_RAY, "ray", name, str(threads), folder, *(["small"] if small else [])]
        process = subprocess.run(command, env=environment(threads), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if process.returncode:
        sys.exit(f"Ray Data, {name}: exit {process.returncode}\n{process.stderr[-4_000:]}")
    return next(float(line.split()[1]) for line in process.stdout.splitlines() if line.startswith("rows/s "))  # Ray may print too


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}


def compare_loops(name: str, threads: int, launches: int, turns: int, small: bool, peers: bool) -> list[Row]:
    """Medians over all turns, and their ratios to the bare script."""
    rays = [measure_ray_data(name, threads, small)] if peers else []
    rates_by_launch = [list(zip(*measure_in_turns(name, threads, turns, small), strict=True)) for _ in range(launches)]
    median_of_bare = statistics.median(rate for _, bare, _ in rates_by_launch for rate in bare)
    return [
        {"model": name, "loop": "ours", **_rate_and_ratio([(bare, lockstep) for lockstep, bare, _ in rates_by_launch])},
        {"model": name, "loop": "ours, without Ray", **_rate_and_ratio([(bare, plain) for _, bare, plain in rates_by_launch])},
        {"model": name, "loop": "bare DDP, in memory", "rows/s": round(median_of_bare), "of bare": 1.0},
        *({"model": name, "loop": "Ray Data, prepare_model", "rows/s": round(rate), "of bare": rate / median_of_bare} for rate in rays),
    ]


def _rate_and_ratio(launched: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Row:
    """The rate, and the mean over launches of its ratio to the bare script, with the standard error."""
    ratios = [statistics.mean(rate / bare_rate for rate, bare_rate in zip(rates, bare, strict=True)) for bare, rates in launched]
    rate = statistics.median(rate for _, rates in launched for rate in rates)
    error = {"±": statistics.stdev(ratios) / len(ratios) ** 0.5} if len(ratios) > 1 else {}
    return {"rows/s": round(rate), "of bare": statistics.mean(ratios), **error, "launches": " ".join(f"{ratio:.3f}" for ratio in ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8, help="of each launch")
    parser.add_argument("--small", action="store_true", help="few steps, to test that it runs")
    parser.add_argument("--no-peers", action="store_true", help="without Ray Data")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    signal(SIGTERM, lambda *_: sys.exit(128 + SIGTERM))  # so that the programs that it started are ended
    threads = max(1, len(os.sched_getaffinity(0)) // WORKERS)
    launches, turns = (1, 1) if arguments.small else (arguments.launches, arguments.turns)
    title = f"training, {WORKERS} workers of {threads} thread{'s' if threads > 1 else ''}, in turns of {TURN_SECONDS:.0f} s"
    case = partial(compare_loops, threads=threads, launches=launches, turns=turns, small=arguments.small, peers=not arguments.no_peers)
    rows = [row for name in arguments.cases for row in case(name)]
    show(title, rows)
    print(save("train", {title: rows}, package_versions("torch", "ray", "mlflow", "pyarrow"), arguments.results))


if __name__ == "__main__":
    main()
