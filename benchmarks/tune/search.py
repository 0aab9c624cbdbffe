"""Measures a search of the settings of conf/adult.yaml: what it saves, and whether it is the same one after kills.

    LOCKSTEP_RAW=FOLDER python -m benchmarks.tune.search [--trials 30] [--epochs 8] [--kills 5] [--exact] [--folder FOLDER] [--small]

Each search has an MLflow of its own, on one dataset version. The rows: trees of Parzen estimators with successive halving, as the config
has it; random trials with it; the same random trials all trained to the end, the full grid; the first search again, whose driver is killed
at random moments; again on two workers; and with ten trials more, in the MLflow of the first. `same` says whether trials, rungs and winner
are those of the first. With strategy exact (`--exact`) they must be; with ddp, sums over two workers are added up in another order.
A measurement that was broken off goes on where it stopped if `--folder` names the same folder.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api

ROOT = Path(__file__).parents[2]
KILL_SECONDS = (15.0, 90.0)
"""Between the start of a command and its kill."""
MORE_TRIALS = 10


@dataclass(frozen=True)
class Place:
    """What all searches of the benchmark share."""

    home: Path
    conf: str
    strategy: str
    trials: int
    epochs: int


def command(place: Place, store: str, workers: int, *flags: str) -> list[str]:
    """A search in the MLflow `store`, whose trainings are on so many workers each."""
    folder = place.home / store
    places = ["--tracking.uri", f"sqlite:///{folder}/mlflow.db", "--train.storage", f"{folder}/runs", "--train.epochs", str(place.epochs)]
    shared = ["--dataset.path", f"{place.home}/data", "--output", f"{folder}/winner.yaml", "--json"]
    shared += ["--train.workers", str(workers), "--train.strategy", place.strategy]
    return [sys.executable, str(ROOT / "jobs/tune.py"), place.conf, *shared, *places, *flags]


def run_search(place: Place, store: str, workers: int, *flags: str, kills: int = 0) -> tuple[dict[str, Any], float]:
    """The result of a search, and its seconds. Its driver is killed so many times, at random moments, before it may end."""
    words, draw = command(place, store, workers, *flags), random.Random(kills)
    (place.home / store).mkdir(exist_ok=True)
    environment = {**os.environ, "RAY_AUTH_MODE": "token"}
    for _ in range(kills):
        with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(draw.uniform(*KILL_SECONDS))
            except subprocess.TimeoutExpired:
                process.kill()
    began = time.monotonic()
    output = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return next(event for event in events if event["event"] == "result"), time.monotonic() - began


def decisions(home: Path, store: str, run_id: str) -> list[tuple[int, int, str]]:
    """Trial, epochs and parameters of each job of a search, from its artifacts."""
    (file,) = (home / store / "mlartifacts").glob(f"*/{run_id}/artifacts/search.json")
    return [(job["trial"], job["epochs"], json.dumps(job["params"])) for job in json.loads(file.read_text())["jobs"]]


def measure(place: Place, kills: int) -> list[Row]:
    trials = ("--tune.trials", str(place.trials))
    searches: dict[str, tuple[str, tuple[str, ...], int]] = {
        "tpe, asha": ("first", trials, 0),
        "random, asha": ("random", (*trials, "--tune.proposer", "random"), 0),
        "random, full grid": ("grid", (*trials, "--tune.proposer", "random", "--tune.scheduler", "none"), 0),
        f"killed {kills} times": ("killed", trials, kills),
        "two workers": ("two", trials, 0),
        f"{MORE_TRIALS} trials more": ("first", ("--tune.trials", str(place.trials + MORE_TRIALS)), 0),
    }
    rows: list[Row] = []
    first: tuple[list[tuple[int, int, str]], int] | None = None
    for name, (store, flags, times) in searches.items():
        result, seconds = run_search(place, store, 2 if store == "two" else 1, *flags, kills=times)
        jobs = decisions(place.home, store, result["run_id"]), result["winner"]
        first = first or jobs
        is_repeated = store in ("killed", "two")
        fresh = result["fresh"]
        rows.append(
            {
                "search": name,
                "epochs": result["epochs"],
                "of": result["full_grid"],
                "saved": f"{result['saved_share']:.0%}",
                "trained now": result["epochs_trained"],
                "best validation": round(result["score"], 4),
                "fresh validation": round(sum(fresh["validation"]) / len(fresh["validation"]), 4) if fresh["validation"] else None,
                "fresh test": round(sum(fresh["test"]) / len(fresh["test"]), 4) if fresh["test"] else None,
                "same": ("yes" if jobs == first else "no") if is_repeated else None,
                "seconds": round(seconds),
            }
        )
        show(f"a search of {place.conf}", rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--exact", action="store_true", help="strategy exact instead of ddp")
    parser.add_argument("--folder", default="")
    parser.add_argument("--results", default=str(RESULTS))
    parser.add_argument("--small", action="store_true", help="four trials of two epochs, and one kill")
    options = parser.parse_args()
    if options.small:
        options.trials, options.epochs, options.kills = 4, 2, 1
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(options.folder or temporary).absolute()
        home.mkdir(parents=True, exist_ok=True)
        conf = str(ROOT / "conf/adult.yaml")
        api.prepare(api.read_config(conf, {"dataset.path": f"{home}/data", "tracking.uri": f"sqlite:///{home}/etl.db"}))
        strategy = "exact" if options.exact else "ddp"
        rows = measure(Place(home, conf, strategy, options.trials, options.epochs), options.kills)
    title = f"{options.trials} trials of at most {options.epochs} epochs{', strategy exact' if options.exact else ''}"
    print(save("tune-search", {title: rows}, package_versions("optuna", "ray", "torch", "mlflow"), Path(options.results)))


if __name__ == "__main__":
    main()
