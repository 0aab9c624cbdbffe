"""Compares drafts of `lockstep init` with what their searches make of them, and with AutoGluon, on the same rows.

    python -m benchmarks.tune.tables [--only concrete kin8nm] [--budget 60s] [--seeds 5] [--autogluon PYTHON] [--results FOLDER]

Each table is drafted, and its version made, as `lockstep init --tune` does. The draft is trained with so many seeds, and the search's
winner with as many others; all are tested once. AutoGluon gets the encoded rows of the training split, those of validation to choose
by, and as many seconds as the search took; it is asked once, since it has one seed. PYTHON has autogluon.tabular installed. `combined` is
the average of the search's best models, one model. `by chance` is twice the standard error of the difference between the means of draft and
winner; of the average, of that between one model and the mean of drafts.
Results are saved after every table. Raw data are read from LOCKSTEP_RAW, by default ../shared/data beside this repository.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd

from benchmarks.init.tables import CASES, METRICS, SMALLER_IS_BETTER, Case, matrix, read_split, score, target_kind
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, open_version

ROOT = Path(__file__).parents[2]
TABLES = ("concrete", "kin8nm", "energy", "taxis_tip", "california", "adult", "diamonds", "taxis")
DEFAULT = TABLES[:5]
AUTOGLUON = """
import json, sys
import pandas as pd
from autogluon.tabular import TabularPredictor
folder, kind, metric, seconds = sys.argv[1:5]
tables = {split: pd.read_parquet(f"{folder}/{split}.parquet") for split in ("train", "validation", "test")}
categories = json.load(open(f"{folder}/categories.json"))
for table in tables.values():
    for name in categories:
        table[name] = table[name].astype("category")
problem = {"quantity": "regression", "classes": "multiclass"}.get(kind, "binary")
evaluation = {"rmse": "root_mean_squared_error", "auc": "roc_auc", "average_precision": "average_precision", "accuracy": "accuracy"}[metric]
predictor = TabularPredictor("y", problem_type=problem, eval_metric=evaluation, path=f"{folder}/models", verbosity=0)
predictor.fit(tables["train"], tuning_data=tables["validation"], time_limit=float(seconds), num_cpus=2)
rows = tables["test"].drop(columns="y")
predicted = predictor.predict_proba(rows)[1] if problem == "binary" else predictor.predict(rows)
pd.DataFrame({"predicted": predicted}).to_parquet(f"{folder}/predicted.parquet")
"""
"""Run by a Python of its own, which has AutoGluon's packages."""


def measure_table(case: Case, path: Path, folder: Path, budget: str, seeds: int, autogluon: str) -> Row:
    """The metric of the test split: of the draft and of the winner, with each seed, and of AutoGluon."""
    file = folder / f"{case.name}.yaml"
    api.init(path, case.target, file, rehearse=False, tune=budget)
    config = api.read_config(file, {"tune.final_seeds": seeds})
    api.prepare(config)
    version = open_version(config.dataset.path, config.data_identity)
    target = next(column for column in version.columns if column.role == "target")
    kind = target_kind(config, target)
    metric = METRICS[kind][-1]
    began = time.monotonic()
    search = api.tune(config, file)
    seconds = time.monotonic() - began
    drafted = [float(api.train(api.read_config(file, {"train.seed": seed})).metrics[f"test/{metric}"]) for seed in range(seeds)]
    tuned = list(search.fresh.test)
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    error = 2 * ((stdev(drafted) ** 2 + stdev(tuned) ** 2) / seeds) ** 0.5 if seeds > 1 else float("nan")
    other = measure_autogluon(version, target, kind, metric, seconds, autogluon) if autogluon else None
    combined = search.combined.test if search.combined else None
    gain = sign * (fmean(tuned) - fmean(drafted))
    combined_gain = None if combined is None else sign * (combined - fmean(drafted))
    combined_error = 2 * stdev(drafted) * (1 + 1 / seeds) ** 0.5 if seeds > 1 else float("nan")
    return {
        "table": case.name,
        "rows": version.rows("train"),
        "metric": metric,
        "draft": fmean(drafted),
        "winner": fmean(tuned),
        "combined": combined,
        "gain": gain,
        "by chance": error,
        "verdict": verdict(gain, error),
        "result": search.best_name,
        "combined verdict": None if combined_gain is None else verdict(combined_gain, combined_error),
        "AutoGluon": other,
        "winner by AutoGluon": None if other is None else (fmean(tuned) / other) ** sign,
        "combined by AutoGluon": None if other is None or combined is None else (combined / other) ** sign,
        "trials": len(search.trials),
        "seconds": round(seconds),
    }


def verdict(gain: float, by_chance: float) -> str:
    return "better" if gain > by_chance else "worse" if gain < -by_chance else "equal"


def measure_autogluon(version: Version, target: TensorColumn, kind: str, metric: str, seconds: float, python: str) -> float:
    """AutoGluon's metric on the test split, in the units of the target."""
    features = [column for column in version.columns if column.role == "feature"]
    with tempfile.TemporaryDirectory() as folder:
        truth = np.zeros(0)
        for split in ("train", "validation", "test"):
            rows = read_split(version, split)
            inputs, is_category = matrix(features, rows, is_one_hot=False)
            table = pd.DataFrame(inputs, columns=[f"x{number}" for number in range(inputs.shape[1])])
            categories = [name for name, is_one in zip(table.columns, is_category, strict=True) if is_one]
            table[categories] = table[categories].astype(int)
            truth = rows[target.name].reshape(len(table))
            table.assign(y=truth).to_parquet(f"{folder}/{split}.parquet")
        Path(folder, "categories.json").write_text(json.dumps(categories))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, "-c", AUTOGLUON, folder, kind, metric, str(seconds)], check=True, env=environment)
        predicted = pd.read_parquet(f"{folder}/predicted.parquet")["predicted"].to_numpy()
    unit = float(version.manifest.encoders[target.name].state["deviation"]) if kind == "quantity" else 1.0
    return unit * score(metric, truth, predicted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=TABLES, default=DEFAULT, metavar="TABLE", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--budget", default="60s", help="of each search")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--autogluon", default="", metavar="PYTHON")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    raw = Path(os.environ.get("LOCKSTEP_RAW", ROOT.parent / "shared" / "data"))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCKSTEP_HOME"] = folder
        for case in CASES:
            if case.name not in arguments.only:
                continue
            if not (raw / case.path).exists():
                print(f"skipping {case.name}: {raw / case.path} does not exist", file=sys.stderr)
                continue
            rows.append(measure_table(case, raw / case.path, Path(folder), arguments.budget, arguments.seeds, arguments.autogluon))
            show(f"a search of {arguments.budget} for each table", rows)
            save("tune-tables", {"rows": rows}, package_versions("optuna", "ray", "torch", "lightgbm"), arguments.results)


if __name__ == "__main__":
    main()
