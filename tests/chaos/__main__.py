"""Faults to real processes at random moments, and the table of what came of them.

python -m chaos [--seed 1] [--cases exact ddp elastic servers layouts signals stages starts nan etl environments predict nights fuzz cost]
                [--nights 50] [--seconds 900] [--results FOLDER] [--append]
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, package_versions, save, show
from chaos import cost, environments, etl, fuzz, layouts, nan, nights, predict, servers, signals, stages, starts, training
from chaos.faults import FAULTS
from chaos.processes import Nodes
from chaos.report import fault_rows, training_row
from chaos.training import Outcome
from pipelines.config.train.train import Train
from pipelines.launch.cluster import cluster

Tables = dict[str, list[dict[str, Any]]]
# In the order of FAULTS.
COUNTS = {"exact": (3, 1, 2, 1, 2, 1, 1, 2, 1, 2), "ddp": (3, 1, 2, 1, 2, 1, 1, 2, 1, 2), "elastic": (1, 0, 1, 4, 1, 1, 0, 1, 0, 1)}
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {"strategy": "exact", "workers": 2},
    "ddp": {"strategy": "ddp", "workers": 2},
    "elastic": {"strategy": "exact", "workers": [1, 2]},
}
ETL_COUNTS = dict(zip(etl.FAULTS, (3, 1, 1, 3, 2, 1, 2, 1), strict=True))
FUZZ_FAULTS = 2_000
SERVER_FAULTS = 60
LAYOUT_KILLS = 20
PREDICT_KILLS = 10


def are_recovered(outcomes: list[Outcome]) -> bool:
    """Whether there were faults, and all have been recovered from."""
    return bool(outcomes) and all(outcome.recovered for outcome in outcomes)


def run_training(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    faults = [fault for fault, count in zip(FAULTS, COUNTS[name], strict=True) for _ in range(count)]
    case = training.disturb(training.Case(name, SETTINGS[name], faults), FAULTS, seed, folder, seconds)
    return {"faults": fault_rows(name, case.outcomes, case.result), "trainings": [training_row(case)]}, training.is_sound(case)


def run_nan(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    with closing(Nodes()) as nodes:
        outcomes = [nan.train_with_nan(folder / strategy, seed, strategy, nodes) for strategy in ("ddp", "exact")]
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_servers(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    digest = servers.reference_digest(folder / "exact")
    until, outcomes, number = time.monotonic() + seconds, [], 0
    while time.monotonic() < until and len(outcomes) < SERVER_FAULTS:
        outcomes += servers.disturb(number, seed, folder / str(number), digest)
        print(f"{number}: {outcomes[-1].note if outcomes else 'no fault'}, {len(outcomes)} faults", flush=True)
        number += 1
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_layouts(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    outcomes: list[Outcome] = []
    rows: list[dict[str, Any]] = []
    with cluster(Train(workers=layouts.MOST_WORKERS)):
        losses = {kind: layouts.reference_losses(kind, folder / f"{kind}-alone") for kind in layouts.KINDS}
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(outcomes) < LAYOUT_KILLS:
            number = len(rows)
            kind = list(losses)[number % len(losses)]
            kills = min(layouts.KILLS, LAYOUT_KILLS - len(outcomes))
            new, row = layouts.disturb(kind, random.Random(f"{seed}/{number}"), folder / str(number), losses[kind], kills)
            outcomes, rows = [*outcomes, *new], [*rows, row]
    return {"faults": fault_rows(name, outcomes, {}), name: rows}, are_recovered(outcomes)


def run_signals(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    until, outcomes = time.monotonic() + seconds, []
    for number in range(signals.RANDOM_MOMENTS):
        if time.monotonic() < until:
            outcomes.append(signals.disturb(number, seed, folder / str(number)))
            print(f"{number}: {outcomes[-1].recovered}, {outcomes[-1].note}", flush=True)
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_stages(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    outcomes = stages.run_all(folder, seed, seconds)
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_starts(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    outcomes = []
    for outcome in starts.run_all(folder, seed, seconds):
        outcomes.append(outcome)
        print(f"{len(outcomes)}: {outcome.recovered}, {outcome.seconds:.0f} s, {outcome.note}", flush=True)
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_etl(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    uri = f"sqlite:///{folder}/mlflow.db"
    reference = etl.run_reference(folder / "undisturbed", uri)
    until, outcomes = time.monotonic() + seconds, []
    for number in range(max(ETL_COUNTS.values())):  # every kind once, before one comes again
        for fault in [fault for fault, count in ETL_COUNTS.items() if number < count and time.monotonic() < until]:
            outcomes.append(etl.disturb(fault, number, seed, folder / f"{fault}-{number}", uri, reference))
            print(f"{outcomes[-1].fault}: {outcomes[-1].recovered}, {outcomes[-1].note}", flush=True)
    sound = are_recovered(outcomes)
    return {"faults": fault_rows(name, outcomes, {"rows lost": 0, "rows repeated": 0} if sound else {})}, sound


def run_environments(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    outcomes = environments.run_all(folder)
    return {"faults": fault_rows(name, outcomes, {})}, are_recovered(outcomes)


def run_predict(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    reference = predict.run_reference(folder / "undisturbed")
    until, outcomes = time.monotonic() + seconds, []
    for number in range(PREDICT_KILLS):
        if time.monotonic() < until:
            outcomes.append(predict.disturb(number, seed, folder / str(number), reference))
            print(f"{number}: {outcomes[-1].recovered}, {outcomes[-1].note}", flush=True)
    sound = are_recovered(outcomes)
    return {"faults": fault_rows(name, outcomes, {"rows lost": 0, "rows repeated": 0} if sound else {})}, sound


def run_nights(name: str, seed: int, folder: Path, seconds: float, count: int = nights.NIGHTS) -> tuple[Tables, bool]:
    outcomes, ending = nights.run_all(folder, seed, count)
    return {"faults": fault_rows(name, outcomes, {}), name: [{"case": name, **ending}]}, are_recovered(outcomes)


def run_fuzz(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    began = time.monotonic()
    fuzzing = fuzz.fuzz(folder, seed, FUZZ_FAULTS)
    print("\n".join(fuzzing.bad), flush=True)
    ends = {end for _, end in fuzzing.counts}
    rows = [
        {"alteration": alteration, **{end: fuzzing.counts[alteration, end] for end in sorted(ends)}}
        for alteration in dict.fromkeys(alteration for alteration, _ in sorted(fuzzing.counts))
    ]
    total = {"alteration": f"all {fuzzing.counts.total():,}, in {time.monotonic() - began:.0f} s"}
    return {"fuzz": [*rows, {**total, **{end: sum(row[end] for row in rows) for end in sorted(ends)}}]}, not fuzzing.bad


def run_cost(name: str, seed: int, folder: Path, seconds: float) -> tuple[Tables, bool]:
    shares = cost.checkpoint_cost(folder, seconds=32.0, rounds=3)
    return {"cost of a checkpoint every 10 s": [{"measured": "share of throughput", **shares}]}, shares["share"] < 0.03


CASES: dict[str, Callable[[str, int, Path, float], tuple[Tables, bool]]] = {
    **dict.fromkeys(COUNTS, run_training),
    "servers": run_servers,
    "layouts": run_layouts,
    "signals": run_signals,
    "stages": run_stages,
    "starts": run_starts,
    "nan": run_nan,
    "etl": run_etl,
    "environments": run_environments,
    "predict": run_predict,
    "nights": run_nights,
    "fuzz": run_fuzz,
    "cost": run_cost,
}


def newest_tables(folder: Path) -> Tables:
    """Tables of the newest result in the folder."""
    files = sorted(folder.glob("chaos-*.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(files[-1].read_text())["tables"] if files else {}


def replace_case(tables: Tables, new: Tables, case: str) -> Tables:
    """Put the new rows in place of the same case's."""
    merged = {title: [*(row for row in tables.get(title, []) if row.get("case", case) != case), *rows] for title, rows in new.items()}
    return {**tables, **merged}


def main() -> None:
    # A shell that starts this in the background has it ignore SIGINT, and all that it starts with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--seconds", type=float, default=900.0, help="of a case, after which no more faults are caused; of nights, their number decides"
    )
    parser.add_argument("--nights", type=int, default=nights.NIGHTS, help="of the case of that name")
    parser.add_argument("--append", action="store_true", help="to today's result instead of replacing it")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started is ended
    versions = package_versions("ray", "torch", "pyspark", "mlflow", "pyarrow")
    cases = {**CASES, "nights": partial(run_nights, count=arguments.nights)}
    tables: Tables = {}
    if arguments.append:
        tables = newest_tables(arguments.results)
    sound = True
    for case in arguments.cases:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as folder:
            new, fine = cases[case](case, arguments.seed, Path(folder), arguments.seconds)
        print(f"{case}: {'sound' if fine else 'NOT SOUND'}, {time.monotonic() - began:.0f} s", flush=True)
        tables, sound = replace_case(tables, new, case), sound and fine
        save("chaos", tables, versions, arguments.results)
    for title, rows in tables.items():
        show(title, rows)
    faults = tables.get("faults", [])
    recovered, times = (sum(row[count] for row in faults) for count in ("recovered", "times"))
    print(f"\n{recovered} of {times} recovered, or ended in the documented error")
    sys.exit(not sound)


if __name__ == "__main__":
    main()
