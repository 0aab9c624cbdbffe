"""Our worker loop beside a bare DDP script and beside Ray's own way: the same models, rows, workers and threads.

    python benchmarks/train.py [--turns 30] [--small] [--cases CASE ...] [--results FOLDER]

Ours reads Parquet, in a whole run under Ray Train that logs to MLflow. The bare script runs under torchrun, on shuffled
tensors that are in memory already. The two take turns, and a ratio is of two turns that follow one another. Ray's own way
reads the same Parquet through Ray Data, with its local shuffle, and runs before them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from sqlite3 import OperationalError, connect

from report import RESULTS, Row, save, show, versions_of
from train_cases import CASES, WORKERS, case_of
from turns import Points, rates, started

HERE = Path(__file__).parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS))
LIMIT_SECONDS = 600
TURN_SECONDS = 4.0


def beside_bare(name: str, threads: int, turns: int, small: bool) -> list[list[float]]:
    """Rows/s of ours and of the bare script in every turn, all workers together."""
    case, arguments = case_of(name, small), ["small"] if small else []
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as text:
        folder, printed = Path(text), Path(text) / "bare.log"
        ours = [sys.executable, str(HERE / "train_on_ray.py"), "ours", name, str(threads), text, *arguments]
        bare = [*TORCHRUN, str(HERE / "train_bare.py"), name, str(threads), *arguments]
        with (
            started(ours, environment(threads), folder / "ours.log", lambda: logged(folder), case.warm_up) as first,
            started(bare, environment(threads), printed, lambda: told(printed), case.warm_up) as second,
        ):
            taken = rates([first, second], turns, TURN_SECONDS)
    return [[steps * case.global_batch for steps in turn] for turn in taken]


def logged(folder: Path) -> Points:
    """The points of our curves, as MLflow has them."""
    query = "select timestamp / 1000.0, step from metrics where key = 'train/step_seconds' order by step"
    try:
        with closing(connect(f"file:{folder}/mlflow.db?mode=ro", uri=True)) as database:
            return list(database.execute(query))
    except OperationalError:  # there is none yet
        return []


def told(printed: Path) -> Points:
    """The points that the bare script printed."""
    lines = [line.split() for line in printed.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(float(line[1]), int(line[2])) for line in lines if line[:1] == ["point"]]


def rays_own(name: str, threads: int, small: bool) -> float:
    """Rows/s of Ray's own way."""
    with tempfile.TemporaryDirectory(prefix="train-", dir="/tmp") as folder:
        command = [sys.executable, str(HERE / "train_on_ray.py"), "ray", name, str(threads), folder, *(["small"] if small else [])]
        done = subprocess.run(command, env=environment(threads), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode:
        sys.exit(f"Ray's own way, {name}: exit {done.returncode}\n{done.stderr[-4_000:]}")
    return next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("rows/s "))  # Ray may print too


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{HERE.parent}:{HERE}", "OMP_NUM_THREADS": str(threads)}


def compared(name: str, threads: int, turns: int, small: bool) -> list[Row]:
    """Medians over the turns; ours in relation to each, with the standard error where it is of turns."""
    rays = rays_own(name, threads, small)
    taken = beside_bare(name, threads, turns, small)
    ours, bare = (statistics.median(rates) for rates in zip(*taken, strict=True))
    ratios = [one / other for one, other in taken]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return [
        {"model": name, "loop": "ours", "rows/s": round(ours)},
        {
            "model": name,
            "loop": "bare DDP, in memory",
            "rows/s": round(bare),
            "ours / it": statistics.median(ratios),
            "±": error,
            "turns": len(ratios),
        },
        {"model": name, "loop": "Ray Data, prepare_model", "rows/s": round(rays), "ours / it": ours / rays},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    threads, turns = max(1, len(os.sched_getaffinity(0)) // WORKERS), 3 if arguments.small else arguments.turns
    title = f"training, {WORKERS} workers of {threads} thread{'s' if threads > 1 else ''}, medians over turns of {TURN_SECONDS:.0f} s"
    rows = [row for name in arguments.cases for row in compared(name, threads, turns, arguments.small)]
    show(title, rows)
    print(save("train", {title: rows}, versions_of("torch", "ray", "mlflow", "pyarrow"), arguments.results))


if __name__ == "__main__":
    main()
