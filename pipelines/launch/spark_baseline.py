"""A baseline: a model of Spark ML, by default a linear one, on the same rows that a model is trained on.

1. `_vectors` converts each row to a sparse vector: numbers unchanged, indices one-hot, sequences and terms as counts.
2. Each of the `candidates` is fitted on the training split; the best one on validation is kept.
3. It is evaluated with the metrics of the task, and with what an evaluation keeps for figures: the run has a page as trainings have.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from math import isnan, prod
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyspark.ml.classification import GBTClassifier, LogisticRegression, RandomForestClassifier
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.regression import GBTRegressor, LinearRegression, RandomForestRegressor
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.loader.reader import Reader
from pipelines.data.sources.base import distribute
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.schema import ROW_NUMBERS, TensorColumn
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_fold
from pipelines.report.evaluation import pack
from pipelines.report.filing import file_baseline
from pipelines.spark.job_endings import driver_errors
from pipelines.spark.session import restored_settings, session
from pipelines.tasks.base import Monitor
from pipelines.tasks.bind import build_task
from pipelines.tasks.details import EvaluationData
from pipelines.tasks.metrics.table import Value, metric_values, missing_reasons, numbers_only, to_number
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.targets.base import QuantityTarget
from pipelines.tasks.targets.classes import BinaryTarget, ClassTarget

log = logging.getLogger(__name__)

MODELS = ("linear", "forest", "boosting")
REGULARISATIONS, ITERATIONS = (0.0, 1e-4, 1e-2), 100
"""Of linear models: `regParam`, for the squared coefficients of standardised columns, and the most iterations."""
TREES, DEPTHS = 100, (6, 12)
"""Of forests: the number of trees, and the depths to choose from."""
ROUNDS, RATE, DEPTH = 60, 0.1, 5
"""Of boosting, which adds a tree in each round: rounds, learning rate, and depth of trees."""
_LEAST_PROBABILITY = 1e-6
"""Of a class in a forest, no tree of which has seen it among rows like this one: the loss stays finite."""
_SCHEMA = StructType(
    [
        StructField("features", VectorUDT()),
        StructField("target", DoubleType()),
        StructField("weight", DoubleType()),
        StructField("row_weight", DoubleType()),
        StructField("row", LongType()),
    ]
)


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


def candidates(model: str, task: Supervised) -> list[tuple[Any, dict[str, str]]]:
    """The estimators to fit, the simplest first, with the parameters that are logged. Needs a session of Spark."""
    is_quantity, is_binary = isinstance(task.target, QuantityTarget), isinstance(task.target, BinaryTarget)
    columns: dict[str, Any] = {"labelCol": "target", "weightCol": "weight"}
    if model == "linear":
        logistic = partial(LogisticRegression, family="binomial" if is_binary else "multinomial")
        linear: Callable[..., Any] = LinearRegression if is_quantity else logistic
        return [(linear(regParam=weight, maxIter=ITERATIONS, **columns), {"regularisation": str(weight)}) for weight in REGULARISATIONS]
    if model == "forest":
        forest = RandomForestRegressor if is_quantity else RandomForestClassifier
        estimators = [forest(numTrees=TREES, maxDepth=depth, seed=0, **columns) for depth in DEPTHS]
        return [(estimator, {"trees": str(TREES), "depth": str(depth)}) for estimator, depth in zip(estimators, DEPTHS, strict=True)]
    boosting = GBTRegressor if is_quantity else GBTClassifier
    estimator = boosting(maxIter=ROUNDS, stepSize=RATE, maxDepth=DEPTH, seed=0, **columns)
    return [(estimator, {"rounds": str(ROUNDS), "depth": str(DEPTH)})]


def output_column(model: str, task: Supervised) -> Column:
    """The task's outputs, an array of `task.outputs` numbers, from what Spark's model adds to a row."""
    if isinstance(task.target, QuantityTarget):
        return F.array("prediction")
    is_binary = isinstance(task.target, BinaryTarget)
    if model == "linear":  # for two classes, Spark's raw prediction is the negative logit and the logit
        raw = vector_to_array(F.col("rawPrediction"))
        return F.slice(raw, 2, 1) if is_binary else raw
    logs = F.transform(vector_to_array(F.col("probability")), lambda value: F.log(F.greatest(value, F.lit(_LEAST_PROBABILITY))))
    return F.array(logs[1] - logs[0]) if is_binary else logs


@restored_settings()
def fit_baseline(config: Config, model: str = "linear") -> dict[str, float]:
    """Fit a baseline on the dataset version of the config, and log it. `model` is one of MODELS. Returns its metrics,
    `validation/…` and `test/…`, without those that are not defined, of which it warns.

    Raises DatasetError if there is no version, ConfigError if the task has no baseline of this model.
    """
    check_fold(config)
    version = open_fold(config)
    task = build_task(config.task, version.manifest)
    if not isinstance(task, Supervised) or type(task.target) not in (BinaryTarget, ClassTarget, QuantityTarget):
        another = " with a target or a loss of another kind" if isinstance(task, Supervised) else ""
        raise ConfigError(
            f"task.kind is {config.task.kind}{another}, which has no baseline; jobs/baseline.py needs a task that predicts one "
            "class or one number per row, such as tabular with loss auto"
        )
    check_baseline(model, task)
    with tracking.baseline_run(config, version) as tracked, driver_errors():
        spark = session(f"{config.name}-baseline")
        rows = {split: _rows(spark, version, split, task).persist() for split in version.manifest.splits if version.rows(split)}
        parameters, metrics, outputs = _best(
            task, candidates(model, task), output_column(model, task), task.choose_monitor(config.train.monitor), rows
        )
        tracked.finish(parameters, numbers_only(metrics))
        evaluations = _evaluation_data(config, version, task, metrics, outputs)
        file_baseline(tracked, version, {evaluation.split: pack(evaluation.summary, evaluation.tables) for evaluation in evaluations})
    log.info("%s: run %s of experiment %s", parameters["model"], tracked.run_id, config.experiment)
    for metric, reason in missing_reasons(metrics).items():
        log.warning("%s is undefined: %s", metric, reason)
    return numbers_only(metrics)


def _best(
    task: Supervised, models: list[tuple[Any, dict[str, str]]], output: Column, monitor: Monitor, rows: dict[str, DataFrame]
) -> tuple[dict[str, str], dict[str, Value], dict[str, torch.Tensor]]:
    """Parameters, metrics and outputs by split of the model with the best validation metric, or with the lowest loss if that is not
    defined; of the first model without a validation split."""
    name, direction = monitor
    fits = []
    for number, (estimator, _) in enumerate(models if "validation" in rows else models[:1]):
        model = estimator.fit(rows["train"])
        metrics, outputs = _evaluate(task, model, output, rows, "validation")
        value, loss = (to_number(metrics.get(f"validation/{metric}", 0.0)) for metric in (name, task.minimised))
        badness = loss if isnan(value) else value if direction == "min" else -value
        fits.append((badness, number, model, metrics, outputs))
    _, number, model, metrics, outputs = min(fits, key=lambda fit: fit[:2])
    test_metrics, test_outputs = _evaluate(task, model, output, rows, "test")
    estimator, parameters = models[number]
    return {"model": type(estimator).__name__, **parameters}, {**metrics, **test_metrics}, {**outputs, **test_outputs}


def _evaluate(
    task: Supervised, model: Any, output: Column, rows: dict[str, DataFrame], split: str
) -> tuple[dict[str, Value], dict[str, torch.Tensor]]:
    """Metrics of the task on a split, and the outputs of its rows in their order, shape (rows, task.outputs), which are collected on the
    driver; both empty without rows."""
    if split not in rows:
        return {}, {}
    table = (
        model.transform(rows[split]).select(output.alias("output"), "target", "row_weight", "row").toArrow().sort_by("row").combine_chunks()
    )
    outputs = torch.from_numpy(table["output"].combine_chunks().flatten().to_numpy().reshape(len(table), -1).copy())
    metrics = task.metrics()
    columns = {task.data.target.name: "target", task.settings.sample_weight: "row_weight"}
    task.update(metrics, outputs, {name: torch.from_numpy(table[column].to_numpy().copy()) for name, column in columns.items()})
    return {f"{split}/{name}": value for name, value in metric_values(metrics).items()}, {split: outputs}


def _evaluation_data(
    config: Config, version: Version, task: Supervised, metrics: dict[str, Value], outputs: dict[str, torch.Tensor]
) -> list[EvaluationData]:
    """Collect data for figures of each split, as the evaluation of a training does, from the outputs of its rows."""
    evaluations, rows = [], include_passthrough(version, (*task.settings.slices, *task.settings.passthrough))
    for split, predicted in outputs.items():
        reader, details, first = Reader(rows, split), task.details(), 0
        assert details is not None, "targets with a baseline have figures"
        details.expect(len(predicted))
        for number, count in enumerate(reader.group_rows.tolist()):
            batch = {name: torch.from_numpy(values.copy()) for name, values in reader.read(number).items()}
            details.update(predicted[first : first + count], {**batch, ROW_NUMBERS: torch.arange(first, first + count)})
            first += count
        split_metrics = {name.removeprefix(f"{split}/"): value for name, value in metrics.items() if name.startswith(f"{split}/")}
        evaluations.append(details.result(split, split_metrics, task.describe_metrics(config.train.monitor)))
    return evaluations


def _rows(spark: SparkSession, version: Version, split: str, task: Supervised) -> DataFrame:
    """Rows of a split with _SCHEMA, one Spark task per part file."""
    groups = version.split_row_groups(split)
    parts = [numbers.tolist() for numbers in np.split(np.arange(len(groups)), np.flatnonzero(np.diff(groups.part)) + 1)]
    weights = None if task.class_weights is None else task.class_weights.numpy()
    return distribute(spark, parts, partial(_part, version, split, weights, sample_weight=task.settings.sample_weight), _SCHEMA)


def _part(
    version: Version, split: str, class_weights: np.ndarray | None, numbers: list[int], sample_weight: str = ""
) -> Iterator[pa.RecordBatch]:
    reader = Reader(version, split)
    target = version.manifest.target
    features = [column for column in version.columns if column.role == "feature"]
    ends = np.cumsum(reader.group_rows)
    for number in numbers:
        values = reader.read(number)
        truth = values[target.name]
        row = np.arange(ends[number] - len(truth), ends[number])
        row_weight = values[sample_weight].astype(float) if sample_weight else np.ones(len(truth))
        weight = row_weight if class_weights is None else class_weights[truth.astype(int)] * row_weight
        columns = [_vectors(features, values), *map(pa.array, (truth.astype(float), weight, row_weight, row))]
        yield pa.record_batch(columns, names=_SCHEMA.names)


def _vectors(features: list[TensorColumn], values: dict[str, np.ndarray]) -> pa.Array:
    """Rows of a row group as sparse vectors of Spark: structs of type (0), size, indices, values."""
    rows = len(next(iter(values.values())))
    row, place, number = ([np.zeros(0, kind)] for kind in (np.int64, np.int64, np.float64))
    width = 0
    for column in features:
        indices = values[column.name][..., 0] if column.counted else values[column.name]
        flat = indices.reshape(rows, -1)
        row_numbers = np.repeat(np.arange(rows), flat.shape[1])
        if column.cardinality is None:
            row.append(row_numbers)
            place.append(np.tile(np.arange(flat.shape[1]), rows))
            number.append(flat.astype(float).ravel())
        else:  # a sequence counts words, without their positions
            row.append(row_numbers)
            place.append(flat.astype(np.int64).ravel())
            number.append(values[column.name][..., 1].astype(float).ravel() if column.counted else np.ones(flat.size))
        place[-1] = place[-1] + width
        width += prod(column.shape) if column.cardinality is None else column.cardinality
    keys, inverse = np.unique(np.concatenate(row) * width + np.concatenate(place), return_inverse=True)
    summed = np.bincount(inverse, np.concatenate(number), len(keys))
    offsets = pa.array(np.searchsorted(keys // width, np.arange(rows + 1)), pa.int32())
    return pa.StructArray.from_arrays(
        [
            pa.array(np.zeros(rows), pa.int8()),
            pa.array(np.full(rows, width), pa.int32()),
            pa.ListArray.from_arrays(offsets, pa.array(keys % width, pa.int32())),
            pa.ListArray.from_arrays(offsets, pa.array(summed)),
        ],
        names=["type", "size", "indices", "values"],
    )
