"""Compares what `lockstep init` drafts for a table with models of scikit-learn, at their defaults, on the same rows.

    python -m benchmarks.init.tables [--only adult concrete] [--results FOLDER]

Each table goes the way of a newcomer: init, ETL and training, without an edit. The others are fitted on the encoded training split, with
categories as such, or one-hot for the linear model, and words of texts by TF-IDF. Where the draft splits by time, the last value of the
target and those of a day and a week before stand beside them. Of a rare class the average precision is compared beside the AUC, and of
several numbers the mean of their squared errors, each in its standard deviations.

A draft that is less than the best other by 0.5 % is trained with two more seeds. `by chance` is the standard error of the best other's
metric for so many test rows, found by resampling them. The results are saved after every table. Raw data are read from LOCKSTEP_RAW, by
default ../shared/data beside this repository; a table that is not there is skipped with a message.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
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
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score, root_mean_squared_error
from sklearn.multioutput import MultiOutputRegressor

from benchmarks.init.made_tables import BUNDLED, MADE, write_table
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.config.dataset.dataset import ByTime
from pipelines.config.train.train import Train
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import LockstepError
from pipelines.launch.cluster import cluster
from pipelines.tasks.targets.base import is_binary

ROOT = Path(__file__).parents[2]
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    name: str
    path: str = ""
    """Empty for a table that is made, or that scikit-learn has."""
    target: str = ""
    """The column to predict, or several with commas between; empty for the one that init takes."""


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
    Case("taxis_both", "seaborn/taxis.csv", "fare,tip"),
    Case("etth", "etth/ETTh1.csv", "OT"),
)
CASES += tuple(Case(name) for name in (*BUNDLED, *MADE))
METRICS = {"binary": ("auc",), "rare": ("auc", "average_precision"), "classes": ("accuracy",), "quantity": ("rmse",), "several": ("loss",)}
"""By the kind of target, as the training names them. The loss of several numbers is the mean of their squared errors as encoded."""
SMALLER_IS_BETTER = ("rmse", "loss")
SEASONS = (1, 24, 168)
"""Rows before a row of a series whose target a naive forecast repeats."""
SLACK = 0.005
"""By how much a draft may be less than the best other before more seeds tell whether it is."""
MORE_SEEDS = (1, 2)
RESAMPLES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="TABLE", help=f"of {', '.join(names)}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    raw = Path(os.environ.get("LOCKSTEP_RAW", ROOT.parent / "shared" / "data"))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, cluster(Train(workers=2)):  # one Ray for all trainings
        os.environ["LOCKSTEP_HOME"] = folder
        for case in CASES:
            if case.name not in arguments.only:
                continue
            path, target = (raw / case.path, case.target) if case.path else write_table(case.name, Path(folder))
            if not path.exists():
                print(f"skipping {case.name}: {path} does not exist", file=sys.stderr)
                continue
            try:
                measured = measure_table(case.name, path, target, Path(folder))
            except LockstepError as error:  # as of the 20 rows of linnerud
                print(f"skipping {case.name}: {error}", file=sys.stderr)
                continue
            rows += measured
            show(case.name, measured)
            file = save("tables", {"rows": rows}, package_versions("scikit-learn", "lightgbm", "torch"), arguments.results)
    show("test splits: the draft of lockstep init, and others on the same rows", rows)
    if rows:
        print(file)


def measure_table(name: str, path: Path, target_name: str, folder: Path) -> list[Row]:
    """Draft, ETL and training of a table, and the others on the version's rows: a row for each metric."""
    file = folder / f"{name}.yaml"
    api.init(path, target_name, file, rehearse=False)  # ETL follows
    config = api.read_config(file)
    api.prepare(config)
    version = open_version(config.dataset.path, config.data_identity)
    target = next(column for column in version.columns if column.role == "target")
    kind = target_kind(config, target)
    test, predicted = fit_others(version, target, kind)
    drafted, compared = [api.train(config).metrics], dict[str, Comparison]()
    for metric in METRICS[kind]:
        unit = float(version.manifest.encoders[target.name].state["deviation"]) if kind == "quantity" else 1.0
        naive = naive_scores(config, path, target.name) if kind == "quantity" else {}
        compared[metric] = Comparison.from_predictions(metric, test, predicted, unit, naive)
    if any(comparison.share(drafted[0][f"test/{metric}"]) < 1 - SLACK for metric, comparison in compared.items()):
        drafted += [api.train(api.read_config(file, {"train.seed": seed})).metrics for seed in MORE_SEEDS]
    model = config.task.kind if getattr(config.task, "hidden", None) != () else "linear"
    facts: Row = {"table": name, "rows": version.rows("train"), "test rows": len(test), "model": model}
    return [
        {**facts, **comparison.row([float(metrics[f"test/{metric}"]) for metrics in drafted])} for metric, comparison in compared.items()
    ]


def target_kind(config: Config, target: TensorColumn) -> str:
    if target.cardinality is None:
        return "several" if target.shape and target.shape[0] > 1 else "quantity"
    if target.cardinality > 2:
        return "classes"
    return "rare" if config.train.monitor == "average_precision" else "binary"


@dataclass(frozen=True)
class Comparison:
    """What the other models have on the test split, by one metric."""

    metric: str
    rivals: dict[str, float]
    by_chance: float
    """The standard error of the best other's metric, as a share of it."""

    @classmethod
    def from_predictions(cls, metric: str, true: np.ndarray, predicted: Columns, unit: float, naive: dict[str, float]) -> "Comparison":
        """`naive` are scores of forecasts that are known already, in `unit`s as encoded."""
        rivals = {name: unit * score(metric, true, values) for name, values in predicted.items()}
        best = (min if metric in SMALLER_IS_BETTER else max)(rivals, key=lambda name: rivals[name])
        draw, resampled = np.random.default_rng(0), list[float]()
        while len(resampled) < RESAMPLES:
            rows = draw.integers(0, len(true), len(true))
            if metric in SMALLER_IS_BETTER or len(np.unique(true[rows])) > 1:
                resampled.append(unit * score(metric, true[rows], predicted[best][rows]))
        least = 1 / len(true) if metric == "accuracy" else 0.0  # a row is what can differ, also where all are right
        return cls(metric, rivals | naive, max(float(np.std(resampled)), least) / rivals[best])

    def share(self, drafted: float) -> float:
        """The draft's metric as a share of the best other's; of an error, the reverse."""
        if self.metric in SMALLER_IS_BETTER:
            return min(self.rivals.values()) / drafted
        return drafted / max(self.rivals.values())

    def row(self, drafted: list[float]) -> Row:
        scores = {"drafted": mean(drafted), **self.rivals}
        return {
            "metric": self.metric,
            **{name: float(f"{score:.4g}") for name, score in scores.items()},
            "of the best other": round(self.share(scores["drafted"]), 4),
            "by chance": round(self.by_chance, 4),
            "by seed": ", ".join(f"{score:.4g}" for score in drafted),
        }


def naive_scores(config: Config, path: Path, target: str) -> dict[str, float]:
    """Of a table that is split by time: the error of the target some rows before, for the best number of rows."""
    split = config.dataset.split
    if not isinstance(split, ByTime) or path.suffix != ".csv":
        return {}
    table = pd.read_csv(path, parse_dates=[split.time]).sort_values(split.time, kind="stable")
    is_test = table[split.time] >= pd.Timestamp(str(split.test))
    errors = (table[target] - table[target].shift(rows) for rows in SEASONS)
    return {"naive": min(float((error[is_test] ** 2).mean() ** 0.5) for error in errors)}


def fit_others(version: Version, target: TensorColumn, kind: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The true values of the test split, and what each model of scikit-learn predicts for its rows: a probability of two classes, a class,
    or numbers as encoded."""
    train, test = read_split(version, "train"), read_split(version, "test")
    features = [column for column in version.columns if column.role == "feature"]
    has_numbers = kind in ("quantity", "several")
    predicted = dict[str, np.ndarray]()
    for name, regressor, classifier, is_one_hot in (
        ("boosting", HistGradientBoostingRegressor, HistGradientBoostingClassifier, False),
        ("forest", RandomForestRegressor, RandomForestClassifier, False),
        ("linear", Ridge, LogisticRegression, True),
    ):
        settings: dict[str, Any] = {"max_iter": 1_000} if classifier is LogisticRegression and not has_numbers else {}
        inputs, is_category = matrix(features, train, is_one_hot)
        if name == "boosting":
            settings = {"categorical_features": is_category}
        model = (regressor if has_numbers else classifier)(**settings, random_state=0)
        if name == "boosting" and kind == "several":
            model = MultiOutputRegressor(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a linear model may not converge
            model.fit(inputs, train[target.name])
        predicted[name] = predict(kind, model, matrix(features, test, is_one_hot)[0])
    if any(column.counted for column in features):
        model = (Ridge if has_numbers else LogisticRegression)()
        columns = [column for column in features if column.counted]
        weights = TfidfTransformer(sublinear_tf=True).fit(count_terms(columns, train))
        model.fit(weights.transform(count_terms(columns, train)), train[target.name])
        predicted["words"] = predict(kind, model, weights.transform(count_terms(columns, test)))
    return test[target.name], predicted


def count_terms(columns: list[TensorColumn], rows: Columns) -> Any:
    """How often each text has each term, a sparse matrix; 0 fills the places behind a text."""
    parts = []
    for column in columns:
        terms, counts_of_terms = np.moveaxis(rows[column.name], 2, 0)
        row_numbers = np.repeat(np.arange(len(terms)), terms.shape[1])
        counts = sparse.csr_matrix((counts_of_terms.ravel().astype(float), (row_numbers, terms.ravel())), (len(terms), column.cardinality))
        parts.append(counts[:, 1:])
    return sparse.hstack(parts, format="csr")


def predict(kind: str, model: Any, inputs: Any) -> np.ndarray:
    return np.asarray(model.predict_proba(inputs)[:, 1] if kind in ("binary", "rare") else model.predict(inputs))


def score(metric: str, true: np.ndarray, predicted: np.ndarray) -> float:
    if metric == "loss":
        return float(np.mean((true - predicted) ** 2))
    functions = {
        "auc": roc_auc_score,
        "average_precision": average_precision_score,
        "accuracy": accuracy_score,
        "rmse": root_mean_squared_error,
    }
    return float(functions[metric](true, predicted))


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
