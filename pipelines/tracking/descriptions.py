"""Texts that people read in MLflow: names of runs, of tags and metrics that its lists hide, the address of an experiment's page; and the
description of a run in Markdown: its result, its data and its pages, in five lines."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException

from pipelines.config import Config, home
from pipelines.config.effects import has_effect
from pipelines.config.messages.words import show_count
from pipelines.data.versions.manifest import Manifest
from pipelines.errors import TrackingError
from pipelines.tracking.client import SQLITE, connect

HIDDEN = "mlflow."
"""Begins the names of tags that only Lockstep reads."""
DESCRIPTION = "mlflow.note.content"
"""MLflow's tag for the description of a run, in Markdown."""
SPARK_APPLICATION = "spark.application_id"
"""The tag with the Spark application of an ETL."""
GIT_COMMIT = "git.commit"
"""Tag of every run."""
_GIT_DESCRIBE = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
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


def git_commit() -> str:
    """The commit of the submitted code, since an uploaded copy has no history, or else of the first of these folders that is a git
    checkout: that of the running program, the current one, LOCKSTEP_HOME. Ends in `-dirty` if files differ from the commit; empty
    without git."""
    if submitted := os.environ.get("LOCKSTEP_GIT_COMMIT"):
        return submitted
    for folder in (Path(sys.argv[0]).absolute().parent, Path.cwd(), home()):
        with suppress(OSError):
            answer = subprocess.run(["git", "-C", folder, *_GIT_DESCRIBE], capture_output=True, text=True, check=False)
            if commit := answer.stdout.strip():
                return commit
    return ""


def describe_training(config: Config, manifest: Manifest, result: str, trained: Mapping[str, Any], page: str) -> str:
    """`result` has the metrics in words; `trained` has `best_epoch`, `epochs`, `steps`, `rows` and `seconds`; `page` is the address of the
    run's page."""
    train = config.train
    speed, steps = trained["rows"] / max(trained["seconds"], 1e-9), train.strategy.describe_steps(train)
    optimizer = f"{train.optimizer} with " if has_effect(config, "train.optimizer") else ""
    rate = [f"{optimizer}lr {train.lr:g}"] if has_effect(config, "train.lr") else []
    rate += [f"changed after epoch {', '.join(str(change.after_epoch) for change in train.changes)}"] if train.changes else []
    settings = [config.task.kind, train.strategy.kind, *rate]
    if has_effect(config, "train.global_batch"):
        settings.append(f"batches of {show_count(train.global_batch, 'row')}")
    return _lines(
        f"**{result}** (best epoch, {trained['best_epoch']} of {trained['epochs']})",
        _data_line(config, manifest),
        ", ".join(settings),
        f"{trained['steps']:,} {steps} in {trained['seconds']:,.0f} s of training, {speed:,.0f} rows/s",
        f"[page of the run]({page})",
    )


def describe_etl(config: Config, manifest: Manifest, seconds: float, page: str = "") -> str:
    """`page` is the address of the page about the data; empty if there is none."""
    refused = sum(manifest.quarantined.values())
    reasons = sorted(manifest.quarantined, key=lambda reason: (-manifest.quarantined[reason], reason))[:3]
    return _lines(
        f"**{_rows(manifest)}**, {refused:,} refused" + (f": {', '.join(reasons)}" if reasons else ""),
        _data_line(config, manifest),
        f"{len(config.dataset.encoders)} columns of {', '.join(config.source.tables)}",
        f"{seconds:,.0f} s",
        f"[page about the data]({page})" if page else "",
    )


def _data_line(config: Config, manifest: Manifest) -> str:
    return f"data: {config.dataset.path}, version {manifest.version}, digest `{manifest.digest[:12]}`, {_rows(manifest)}"


def _rows(manifest: Manifest) -> str:
    return ", ".join(f"{split} {summary.rows:,}" for split, summary in manifest.splits.items())


def _lines(*lines: str) -> str:
    return "  \n".join(filter(None, lines))
