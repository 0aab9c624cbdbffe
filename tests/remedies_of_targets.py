"""Remedies of errors about targets and weights: what raises each, and what it offers instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remedy_cases import Do, fit_columns

from pipelines.applications.recommendation.settings import RecommendationSettings
from pipelines.applications.trees.settings import TreesSettings
from pipelines.config.load import load
from pipelines.config.plugins import import_class
from pipelines.config.tasks.task import TabularSettings, TextSettings
from pipelines.launch.checks import check_before_etl
from pipelines.tasks.base import Task
from pipelines.tasks.bind import task_data
from pipelines.tasks.supervised import target_kind


def check(target: Any, **task: Any) -> Callable[[Path], None]:
    """Check a config of adult with this target and these settings of the task."""
    flags = {f"task.{name}": value for name, value in task.items()}
    encoders = {"dataset.target": {"y": target}} if target else {}
    return lambda folder: check_before_etl(load("conf/adult.yaml", {"task.slices": [], **flags, **encoders}))


def fit_grades(encoder: Any) -> None:
    """Build a task of grades whose encoder is fitted."""
    encoders = fit_columns({"x": "identity"}, encoder, x=[0, 1, 2], y=["low", "medium", "high"])
    target_kind(task_data(encoders), TabularSettings(loss="ordinal"))


def build_text_task(settings: Any, encoder: Any, **numbers: Any) -> None:
    """Build a task, and its model, over an encoded text and features that are numbers."""
    columns = {name: [1.0, 2.0, 3.0] for name in numbers}
    encoders = fit_columns({"a": encoder, **numbers}, "binary", a=["x y", "x", "x"], y=[True, False, True], **columns)
    import_class(settings.implementation, Task, "a task")(settings, task_data(encoders)).model()


DLRM = RecommendationSettings(network="dlrm")
AGES = {"encoder": "vector", "columns": ["age", "hours_per_week"]}
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "but weights are at least 0, and some are more": (
        lambda folder: fit_columns("weight", a=[0, 0, 0]),
        (lambda folder: fit_columns({"b": "weight"}, a=[0, 0, 0], b=[0, 1, 2]), lambda folder: fit_columns("weight", a=[1, 1, 1])),
    ),
    "but counts are at least 0, and some are more; use standardize": (
        lambda folder: fit_columns("count", a=[-1, 0, 0]),
        (lambda folder: fit_columns("standardize", a=[-1, 0, 0]),),
    ),
    "has no label with {} occurrences in the training split": (
        lambda folder: fit_columns({"encoder": "labels", "min_count": 4}, a=[["x"], ["x"], ["y"]]),
        (
            lambda folder: fit_columns({"encoder": "labels", "min_count": 2}, a=[["x"], ["x"], ["y"]]),
            lambda folder: fit_columns({"b": {"encoder": "labels", "min_count": 4}}, a=[["x"], [], []], b=[["x", "x"], ["x"], ["x"]]),
        ),
    ),
    "has no term that {} texts of the training split have": (
        lambda folder: fit_columns({"encoder": "terms", "min_count": 3}, a=["x", "x y", "z"]),
        (
            lambda folder: fit_columns({"encoder": "terms", "min_count": 2}, a=["x", "x y", "z"]),
            lambda folder: fit_columns({"b": {"encoder": "terms", "min_count": 3}}, a=["x", "y", "z"], b=["x", "x", "x y"]),
        ),
    ),
    "which does not take {} of the encoder terms": (
        lambda folder: build_text_task(DLRM, "terms", b="identity"),
        (
            lambda folder: build_text_task(TextSettings(), "terms"),
            lambda folder: build_text_task(TabularSettings(), "terms", b="identity"),
            lambda folder: build_text_task(TreesSettings(), "terms", b="identity"),
            lambda folder: build_text_task(DLRM, {"encoder": "sequence", "length": 2}, b="identity"),
        ),
    ),
    "but all features are of the encoder terms": (
        lambda folder: build_text_task(TabularSettings(), "terms"),
        (
            lambda folder: build_text_task(TextSettings(), "terms"),
            lambda folder: build_text_task(TabularSettings(), "terms", b="identity"),
        ),
    ),
    "name those in order": (
        lambda folder: fit_columns({"encoder": "label", "order": ["x"]}, a=["y", "z", "y"]),
        (lambda folder: fit_columns({"encoder": "label", "order": ["z", "y"]}, a=["y", "z", "y"]),),
    ),
    "task.metrics has {}, which is no further metric": (
        check("binary", metrics=["mape"]),
        (check("binary", metrics=["average_precision", "balanced_accuracy", "f2"]), check("binary")),
    ),
    "but rows of the target {} have no single class": (
        check("standardize", label_smoothing=0.1),
        (
            check("standardize", label_smoothing=0),
            check("label", label_smoothing=0.1, loss="auto"),
            check("binary", label_smoothing=0.1, loss="auto"),
        ),
    ),
    "task.target_weights are weights of several numbers": (
        check("standardize", target_weights={"y": 2.0}),
        (check("standardize"), check(AGES, target_weights={"age": 2.0})),
    ),
    "task.target_weights are all 0": (
        check(AGES, target_weights={"age": 0.0, "hours_per_week": 0.0}),
        (check(AGES, target_weights={"age": 0.0, "hours_per_week": 1.0}),),
    ),
    "of which pages have no figures": (check("labels", slices=["sex"]), (check("labels", slices=[]),)),
    "in order of its encoder label": (
        lambda folder: fit_grades({"encoder": "label"}),
        (lambda folder: fit_grades({"encoder": "label", "order": ["low", "medium", "high"]}),),
    ),
    "encode it with {}, or set task.loss to auto": (
        check("binary", loss="poisson"),
        (check("count", loss="poisson"), check("binary", loss="auto")),
    ),
    "which is for one value, but the target": (check("labels", loss="poisson"), (check("labels", loss="auto"),)),
    "but this task predicts one value, several numbers or labels": (
        check({"encoder": "image", "shape": [1, 8, 8]}),
        (check("binary"), check("label"), check("labels"), check(AGES), check("standardize")),
    ),
}
