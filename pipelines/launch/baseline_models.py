"""Models of Spark ML that a baseline may be: linear models, random forests, gradient-boosted trees."""

from dataclasses import dataclass
from typing import Any

from pyspark.ml.classification import GBTClassifier, LogisticRegression, RandomForestClassifier
from pyspark.ml.functions import vector_to_array
from pyspark.ml.regression import GBTRegressor, LinearRegression, RandomForestRegressor
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.errors import ConfigError
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.targets.base import QuantityTarget
from pipelines.tasks.targets.classes import BinaryTarget

MODELS = ("linear", "forest", "boosting")
REGULARISATIONS = (0.0, 1e-4, 1e-2)
"""Values of Spark's `regParam`, the weight of the squared coefficients of standardised columns."""
ITERATIONS = 100
DEPTHS = (6, 12)
"""Depths of the trees of a forest."""
TREES = 100
ROUNDS, RATE, DEPTH = 60, 0.1, 5
"""Of boosting, which adds a tree in each round."""
_LEAST_PROBABILITY = 1e-6
"""Of a class in a forest, no tree of which has seen it among rows like this one: the loss stays finite."""
_COLUMNS: dict[str, Any] = {"labelCol": "target", "weightCol": "weight"}


@dataclass(frozen=True)
class BaselineModel:
    """A model that may be the best on validation."""

    estimator: Any
    parameters: dict[str, str]
    """Logged with the run."""


def check_baseline(model: str, task: Supervised) -> None:
    """Raise ConfigError if there is no such model, or none for the task's target. Starts no Spark."""
    if model not in MODELS:
        raise ConfigError(f"--model is {model!r}; it must be one of {', '.join(MODELS)}")
    if missing := [column.name for column in task.data.features if column.missing]:
        raise ConfigError(
            f"dataset.features.{missing[0]} keeps missing numbers, which models of Spark ML do not take; set its impute to median in a "
            "config for the baseline"
        )
    if model == "boosting" and not isinstance(task.target, QuantityTarget | BinaryTarget):
        raise ConfigError(
            f"--model is boosting, and Spark's boosting has two classes, but {task.data.target.name} has {task.outputs}; set it to forest"
        )


def candidates(model: str, task: Supervised) -> tuple[BaselineModel, ...]:
    """The models to fit, the simplest first. Needs a session of Spark."""
    is_quantity, is_binary = isinstance(task.target, QuantityTarget), isinstance(task.target, BinaryTarget)
    if model == "linear":
        return tuple(_linear(is_quantity, is_binary, regularisation) for regularisation in REGULARISATIONS)
    if model == "forest":
        return tuple(_forest(is_quantity, depth) for depth in DEPTHS)
    estimator = (GBTRegressor if is_quantity else GBTClassifier)(maxIter=ROUNDS, stepSize=RATE, maxDepth=DEPTH, seed=0, **_COLUMNS)
    return (BaselineModel(estimator, {"rounds": str(ROUNDS), "depth": str(DEPTH)}),)


def output(model: str, task: Supervised) -> Column:
    """The task's outputs, an array of `task.outputs` numbers, from what Spark's model adds to a row."""
    if isinstance(task.target, QuantityTarget):
        return F.array("prediction")
    is_binary = isinstance(task.target, BinaryTarget)
    if model == "linear":  # for two classes, Spark's raw prediction is the negative logit and the logit
        raw = vector_to_array(F.col("rawPrediction"))
        return F.slice(raw, 2, 1) if is_binary else raw
    logs = F.transform(vector_to_array(F.col("probability")), lambda value: F.log(F.greatest(value, F.lit(_LEAST_PROBABILITY))))
    return F.array(logs[1] - logs[0]) if is_binary else logs


def _linear(is_quantity: bool, is_binary: bool, regularisation: float) -> BaselineModel:
    settings: dict[str, Any] = {"regParam": regularisation, "maxIter": ITERATIONS, **_COLUMNS}
    estimator = (
        LinearRegression(**settings) if is_quantity else LogisticRegression(family="binomial" if is_binary else "multinomial", **settings)
    )
    return BaselineModel(estimator, {"regularisation": str(regularisation)})


def _forest(is_quantity: bool, depth: int) -> BaselineModel:
    estimator = (RandomForestRegressor if is_quantity else RandomForestClassifier)(numTrees=TREES, maxDepth=depth, seed=0, **_COLUMNS)
    return BaselineModel(estimator, {"trees": str(TREES), "depth": str(depth)})
