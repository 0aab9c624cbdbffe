"""Compares what `lockstep init` drafts for a table with models of scikit-learn, at their defaults, on the same rows.

    python -m benchmarks.init.tables [--only adult concrete] [--results FOLDER]

Each table goes the way of a newcomer: init, ETL and training, without an edit. The others are fitted on the encoded training split, with
categories as such, or one-hot for the linear model, and words of texts by TF-IDF. Where the draft splits by time, the last value of the
target and those of a day and a week before stand beside them. A draft that is less than the best other is trained with two more seeds.
Raw data are read from LOCKSTEP_RAW, by default ../shared/data beside this repository; a table that is not there is skipped with a message.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error

from benchmarks.init.made_tables import BUNDLED, MADE, write_table
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.config.dataset.dataset import ByTime
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, open_version
from pipelines.tasks.targets.base import is_binary

ROOT = Path(__file__).parents[2]
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    name: str
    path: str = ""
    """Empty for a table that is made, or that scikit-learn has."""
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
CASES += tuple(Case(name) for name in (*BUNDLED, *MADE))
METRICS = {"binary": "auc", "classes": "accuracy", "quantity": "rmse"}
SEASONS = (1, 24, 168)
"""Rows before a row of a series whose target a naive forecast repeats."""
MORE_SEEDS = (1, 2)


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
            if case.name not in arguments.only:
                continue
            path, target = (raw / case.path, case.target) if case.path else write_table(case.name, Path(folder))
            if not path.exists():
                print(f"skipping {case.name}: {path} does not exist", file=sys.stderr)
                continue
            rows.append(measure_table(case.name, path, target, Path(folder)))
            show(case.name, rows[-1:])
    show("test splits: the draft of lockstep init, and others on the same rows", rows)
    print(save("tables", {"rows": rows}, package_versions("scikit-learn", "lightgbm", "torch"), arguments.results))


def measure_table(name: str, path: Path, target_name: str, folder: Path) -> Row:
    """Draft, ETL and training of a table, and the others on the version's rows."""
    file = folder / f"{name}.yaml"
    api.init(path, target_name, file)
    config = api.read_config(file)
    api.prepare(config)
    version = open_version(config.dataset.path, config.data_identity)
    target = next(column for column in version.columns if column.role == "target")
    kind = "quantity" if target.cardinality is None else "binary" if target.cardinality == 2 else "classes"
    unit = float(version.manifest.encoders[target.name].state["deviation"]) if kind == "quantity" else 1.0
    metric = METRICS[kind]
    baselines = {other: unit * score for other, score in other_scores(version, target, kind)}
    baselines |= naive_scores(config, path, target.name) if kind == "quantity" else {}
    best_other = (min if kind == "quantity" else max)(baselines.values())

    def ratio(score: float) -> float:
        return best_other / score if kind == "quantity" else score / best_other

    drafted = [train_and_measure(config, metric)]
    if ratio(drafted[0]) < 1:
        drafted += [train_and_measure(api.read_config(file, {"train.seed": seed}), metric) for seed in MORE_SEEDS]
    model = config.task.kind if getattr(config.task, "hidden", None) != () else "linear"
    scores = {"drafted": mean(drafted), **baselines}
    return {
        "table": name,
        "rows": version.rows("train"),
        "metric": metric,
        "model": model,
        **{other: float(f"{score:.4g}") for other, score in scores.items()},
        "of the best other": round(ratio(scores["drafted"]), 4),
        "by seed": ", ".join(f"{score:.4g}" for score in drafted),
    }


def train_and_measure(config: Config, metric: str) -> float:
    return float(api.train(config).metrics[f"test/{metric}"])


def naive_scores(config: Config, path: Path, target: str) -> dict[str, float]:
    """Of a table that is split by time: the error of the target some rows before, for the best number of rows."""
    split = config.dataset.split
    if not isinstance(split, ByTime) or path.suffix != ".csv":
        return {}
    table = pd.read_csv(path, parse_dates=[split.time]).sort_values(split.time, kind="stable")
    is_test = table[split.time] >= pd.Timestamp(str(split.test))
    errors = (table[target] - table[target].shift(rows) for rows in SEASONS)
    return {"naive": min(float((error[is_test] ** 2).mean() ** 0.5) for error in errors)}


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
    if any(column.counted for column in features):
        model = (Ridge if kind == "quantity" else LogisticRegression)()
        columns = [column for column in features if column.counted]
        weights = TfidfTransformer(sublinear_tf=True).fit(count_terms(columns, train))
        model.fit(weights.transform(count_terms(columns, train)), train[target.name])
        yield "words", score(kind, model, weights.transform(count_terms(columns, test)), test[target.name])


def count_terms(columns: list[TensorColumn], rows: Columns) -> Any:
    """How often each text has each term, a sparse matrix; 0 fills the places behind a text."""
    parts = []
    for column in columns:
        terms, counts_of_terms = np.moveaxis(rows[column.name], 2, 0)
        row_numbers = np.repeat(np.arange(len(terms)), terms.shape[1])
        counts = sparse.csr_matrix((counts_of_terms.ravel().astype(float), (row_numbers, terms.ravel())), (len(terms), column.cardinality))
        parts.append(counts[:, 1:])
    return sparse.hstack(parts, format="csr")


def score(kind: str, model: Any, inputs: np.ndarray, true: np.ndarray) -> float:
    if kind == "binary":
        return float(roc_auc_score(true, model.predict_proba(inputs)[:, 1]))
    predicted = model.predict(inputs)
    return float(accuracy_score(true, predicted) if kind == "classes" else root_mean_squared_error(true, predicted))


def matrix(features: list[TensorColumn], rows: Columns, is_one_hot: bool) -> tuple[np.ndarray, list[bool]]:
    """The features side by side, shape (rows, inputs), and which inputs are categories that boosting takes as such."""
    parts, is_category = [], list[bool]()
    for column in features:
        if column.counted:
            parts.append(frequent_counts(column, rows))
            is_category += [False] * parts[-1].shape[1]
            continue
        values = rows[column.name].reshape(len(rows[column.name]), -1)
        is_index = column.cardinality is not None and not is_binary(column)
        if is_index and is_one_hot:
            values = np.eye(column.cardinality, dtype=np.float32)[values].reshape(len(values), -1)
        parts.append(values.astype(np.float32))
        is_category += [is_index and not is_one_hot and (column.cardinality or 0) <= 255] * values.shape[1]
    return np.concatenate(parts, axis=1), is_category


def frequent_counts(column: TensorColumn, rows: Columns) -> np.ndarray:
    """Counts of the 300 first terms, as trees have them: they are numbered by the number of texts."""
    return np.asarray(count_terms([column], rows)[:, :300].toarray(), dtype=np.float32)


def read_split(version: Version, split: str) -> Columns:
    reader = Reader(version, split)
    groups = [{name: values.copy() for name, values in reader.read(number).items()} for number in range(len(reader.groups))]
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


if __name__ == "__main__":
    main()
