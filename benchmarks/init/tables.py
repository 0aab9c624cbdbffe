"""Compares what `lockstep init` drafts for a table with models of scikit-learn, at their defaults, on the same rows.

    python -m benchmarks.init.tables [--only adult concrete] [--results FOLDER]

Each table goes the way of a newcomer: init, ETL and training, without an edit. The others are fitted on the encoded training split, with
categories as such, or one-hot for the linear model. Raw data are read from LOCKSTEP_RAW, by default ../shared/data beside this
repository; a table that is not there is skipped with a message.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, open_version
from pipelines.tasks.targets.base import is_binary

ROOT = Path(__file__).parents[2]
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    name: str
    path: str
    target: str = ""
    """The column to predict; empty for the one that init takes."""


CASES = (
    Case("adult", "adult"),
    Case("california", "california-housing/housing.csv", "median_house_value"),
    Case("concrete", "uci/concrete/data.txt"),
    Case("energy", "uci/energy/data.txt"),
    Case("kin8nm", "uci/kin8nm/data.txt"),
    Case("diamonds", "seaborn/diamonds.csv", "price"),
    Case("diamonds_cut", "seaborn/diamonds.csv", "cut"),
    Case("taxis", "seaborn/taxis.csv", "payment"),
    Case("taxis_fare", "seaborn/taxis.csv", "fare"),
    Case("taxis_tip", "seaborn/taxis.csv", "tip"),
)
METRICS = {"binary": "auc", "classes": "accuracy", "quantity": "rmse"}
TREES = {
    "task": {"kind": "trees"},
    "train": {"workers": 1},
}
"""In place of the drafted network and its training."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="TABLE", help=f"of {', '.join(names)}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    raw = Path(os.environ.get("LOCKSTEP_RAW", ROOT.parent / "shared" / "data"))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCKSTEP_HOME"] = folder
        for case in CASES:
            if case.name in arguments.only and (raw / case.path).exists():
                rows.append(measure_table(case, raw / case.path, Path(folder)))
                show(case.name, rows[-1:])
            elif case.name in arguments.only:
                print(f"skipping {case.name}: {raw / case.path} does not exist", file=sys.stderr)
    show("test splits: the draft of lockstep init, our trees, and others on the same rows", rows)
    print(save("tables", {"rows": rows}, package_versions("scikit-learn", "lightgbm", "torch"), arguments.results))


def measure_table(case: Case, path: Path, folder: Path) -> Row:
    """Draft, ETL and training of a table, and the others on the version's rows."""
    file = folder / f"{case.name}.yaml"
    api.init(path, case.target, file)
    config = api.read_config(file)
    api.prepare(config)
    version = open_version(config.dataset.path, config.data_identity)
    target = next(column for column in version.columns if column.role == "target")
    kind = "quantity" if target.cardinality is None else "binary" if target.cardinality == 2 else "classes"
    unit = float(version.manifest.encoders[target.name].state["deviation"]) if kind == "quantity" else 1.0
    metric = METRICS[kind]
    scores = {"drafted": train_and_measure(config, metric), "trees": train_and_measure(api.read_config(file, TREES), metric)}
    scores |= {name: unit * score for name, score in other_scores(version, target, kind)}
    best_other = (min if kind == "quantity" else max)(list(scores.values())[2:])
    ratio = best_other / scores["drafted"] if kind == "quantity" else scores["drafted"] / best_other
    values = {name: float(f"{score:.4g}") for name, score in scores.items()}
    return {"table": case.name, "rows": version.rows("train"), "metric": metric, **values, "of the best other": round(ratio, 3)}


def train_and_measure(config: Config, metric: str) -> float:
    return float(api.train(config).metrics[f"test/{metric}"])


def other_scores(version: Version, target: TensorColumn, kind: str) -> Iterator[tuple[str, float]]:
    """The metric of each model of scikit-learn on the test split, a quantity's in the encoded unit."""
    train, test = read_split(version, "train"), read_split(version, "test")
    features = [column for column in version.columns if column.role == "feature"]
    for name, regressor, classifier, is_one_hot in (
        ("boosting", HistGradientBoostingRegressor, HistGradientBoostingClassifier, False),
        ("forest", RandomForestRegressor, RandomForestClassifier, False),
        ("linear", Ridge, LogisticRegression, True),
    ):
        settings: dict[str, Any] = {"max_iter": 1_000} if classifier is LogisticRegression and kind != "quantity" else {}
        inputs, is_category = matrix(features, train, is_one_hot)
        if name == "boosting":
            settings = {"categorical_features": is_category}
        model = (regressor if kind == "quantity" else classifier)(**settings, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a linear model may not converge
            model.fit(inputs, train[target.name])
        yield name, score(kind, model, matrix(features, test, is_one_hot)[0], test[target.name])


def score(kind: str, model: Any, inputs: np.ndarray, true: np.ndarray) -> float:
    if kind == "binary":
        return float(roc_auc_score(true, model.predict_proba(inputs)[:, 1]))
    predicted = model.predict(inputs)
    return float(accuracy_score(true, predicted) if kind == "classes" else root_mean_squared_error(true, predicted))


def matrix(features: list[TensorColumn], rows: Columns, is_one_hot: bool) -> tuple[np.ndarray, list[bool]]:
    """The features side by side, shape (rows, inputs), and which inputs are categories that boosting takes as such."""
    parts, is_category = [], list[bool]()
    for column in features:
        values = rows[column.name].reshape(len(rows[column.name]), -1)
        is_index = column.cardinality is not None and not is_binary(column)
        if is_index and is_one_hot:
            values = np.eye(column.cardinality, dtype=np.float32)[values].reshape(len(values), -1)
        parts.append(values.astype(np.float32))
        is_category += [is_index and not is_one_hot and (column.cardinality or 0) <= 255] * values.shape[1]
    return np.concatenate(parts, axis=1), is_category


def read_split(version: Version, split: str) -> Columns:
    reader = Reader(version, split)
    groups = [{name: values.copy() for name, values in reader.read(number).items()} for number in range(len(reader.groups))]
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


if __name__ == "__main__":
    main()
