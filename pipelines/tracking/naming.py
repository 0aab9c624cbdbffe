"""Names that people meet in MLflow: of runs, of the tags and metrics that its lists hide, and the address of an experiment's page.

MLflow does not list tags that begin with `mlflow.`, and has a page of their own for metrics that begin with `system/`.
"""

import re
from datetime import datetime

from mlflow.exceptions import MlflowException

from pipelines.config import Config
from pipelines.errors import TrackingError
from pipelines.tracking.client import SQLITE, connect

HIDDEN = "mlflow."
"""Begins the names of tags that only Lockstep reads."""
DESCRIPTION = "mlflow.note.content"
"""MLflow's tag for the description of a run, in Markdown."""
SPARK_APPLICATION = "spark.application_id"
"""The tag with the Spark application of an ETL."""
_WORKERS = "system/workers/"
_OF_WORKERS = ("time/", "memory/")
"""Metrics of how workers spend time and memory; MLflow has them below `system/workers/`, after and apart from those of the model."""
_OF_ONE_WORKER = ("worst", "worst_rank")
"""Endings of metrics that are of one worker; MLflow has them below these words, apart from the means."""
_LOCAL = "http://127.0.0.1:5000"
"""Where `make ui` serves an SQLite file, unless PORT says otherwise."""


def run_name(config: Config, kind: str) -> str:
    """`tracking.run_name`, or what is likely to differ, the pipeline and the time: `ddp lr=0.003 · churn · 2026-11-25 21:04`.

    MLflow's list shows 20 characters, so that what differs comes first. `kind` is empty for a training, and else a word such as `ETL`."""
    chosen, fold = config.tracking.run_name, "" if config.train.fold is None or kind else f"fold {config.train.fold}"
    rate = "" if config.task.needs_own_strategy else f" lr={config.train.lr:g}"
    setting = kind or f"{config.train.strategy.kind}{rate}"
    parts = (kind or fold, chosen) if chosen else (fold, setting, config.name, f"{datetime.now():%Y-%m-%d %H:%M}")
    return " · ".join(filter(None, parts))


def model_name(config: Config) -> str:
    """The logged model's name: the pipeline's, without the characters that MLflow refuses there."""
    return re.sub(r"[.%/:\"']", "-", config.name)


def mlflow_metric(name: str) -> str:
    """The name that a metric has in MLflow."""
    if not name.startswith(_OF_WORKERS):
        return name
    kind = next((kind for kind in _OF_ONE_WORKER if name.endswith(f"_{kind}")), "")
    return f"{_WORKERS}{kind}/{name.removesuffix(f'_{kind}')}" if kind else f"{_WORKERS}{name}"


def metric_name(stored: str) -> str:
    """The metric that has this name in MLflow."""
    name = stored.removeprefix(_WORKERS)
    kind, _, metric = name.partition("/")
    return f"{metric}_{kind}" if stored != name and kind in _OF_ONE_WORKER else name


def experiment_page(uri: str, experiment_id: str) -> str:
    """The address of an experiment's table of runs. MLflow's own links open its view for traces of language models instead."""
    if not uri.startswith(("http://", "https://", SQLITE)):
        return ""
    page = f"/#/experiments/{experiment_id}?workflowType=machine_learning"
    return f"make ui, then {_LOCAL}{page}" if uri.startswith(SQLITE) else f"{uri.rstrip('/')}{page}"


def browse_line(config: Config) -> str:
    """The last line of a command: where its experiment is seen. Empty if MLflow does not answer, which must not fail a finished command."""
    try:
        experiment = connect(config.tracking.uri).get_experiment_by_name(config.experiment)
    except (MlflowException, TrackingError, OSError):
        return ""
    page = experiment_page(config.tracking.uri, experiment.experiment_id) if experiment else ""
    return f"browse    {page}" if page else ""
