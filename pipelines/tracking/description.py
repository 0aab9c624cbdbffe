"""The description of a run in MLflow, in Markdown: its result, its data and its pages, in five lines."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.config import Config, home
from pipelines.config.effects import has_effect
from pipelines.config.messages.counting import show_count
from pipelines.data.versions.manifest import Manifest

GIT_COMMIT = "git.commit"
"""Tag of every run."""
_COMMAND = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def git_commit() -> str:
    """The commit of the submitted code, since an uploaded copy has no history, or else of the first of these folders that is a git
    checkout: that of the running program, the current one, LOCKSTEP_HOME. Ends in `-dirty` if files differ from the commit; empty
    without git."""
    if submitted := os.environ.get("LOCKSTEP_GIT_COMMIT"):
        return submitted
    folders = [Path(sys.argv[0]).absolute().parent, Path.cwd(), home()]
    return next(filter(None, map(_commit, folders)), "")


def _commit(folder: Path) -> str:
    try:
        return subprocess.run(["git", "-C", folder, *_COMMAND], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def describe_training(config: Config, manifest: Manifest, result: str, trained: Mapping[str, Any], page: str) -> str:
    """`result` has the metrics in words; `trained` has `best_epoch`, `epochs`, `steps`, `rows` and `seconds`; `page` is the address of the
    run's page."""
    speed, steps = trained["rows"] / max(trained["seconds"], 1e-9), config.train.strategy.describe_steps(config.train)
    return _lines(
        f"**{result}** (best epoch, {trained['best_epoch']} of {trained['epochs']})",
        _data_line(config, manifest),
        ", ".join(_training_words(config)),
        f"{trained['steps']:,} {steps} in {trained['seconds']:,.0f} s of training, {speed:,.0f} rows/s",
        f"[page of the run]({page})",
    )


def _training_words(config: Config) -> Iterator[str]:
    """The task, the strategy, and those of the usual settings that have an effect on it."""
    train = config.train
    yield from (config.task.kind, train.strategy.kind)
    yield f"{train.optimizer} with lr {train.lr:g}" if has_effect(config, "train.optimizer") else f"lr {train.lr:g}"
    if has_effect(config, "train.global_batch"):
        yield f"batches of {show_count(train.global_batch, 'row')}"


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


def artifact_page(experiment_id: str, run_id: str, file: str) -> str:
    """The address of an artifact in MLflow's pages, relative to that of the run."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{file}"


def _data_line(config: Config, manifest: Manifest) -> str:
    return f"data: {config.dataset.path}, version {manifest.version}, digest `{manifest.digest[:12]}`, {_rows(manifest)}"


def _rows(manifest: Manifest) -> str:
    return ", ".join(f"{split} {summary.rows:,}" for split, summary in manifest.splits.items())


def _lines(*lines: str) -> str:
    return "  \n".join(filter(None, lines))
