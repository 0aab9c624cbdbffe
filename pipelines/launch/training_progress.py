"""Prints a training's progress, the metrics of each epoch, and a summary."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.runtime.progress import Progress, is_json
from pipelines.tasks.metrics.table import Value, format_value, missing_reasons, numbers_only
from pipelines.tasks.targets.decision import describe_decision

EPOCH_SECONDS = 2.0
"""Between two lines about epochs."""


class TrainingProgress:
    """Prints the progress that rank 0 writes into the run's directory."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or Progress()
        self._epoch, self._last_epoch = 0.0, -EPOCH_SECONDS
        self._attempt, self._last_death, self._died_before_first_step = "", 0.0, False
        self.record_death: Callable[[str], None] = lambda line: None
        """Called with the line about workers that died."""

    def show(self, written: Mapping[str, Any] | None, deaths: Mapping[str, Any] | None = None) -> None:
        """Print deaths and restarts of workers, the metrics of a new epoch, and the progress if it is due."""
        if deaths is not None and deaths["time"] > self._last_death:
            self._last_death = deaths["time"]
            self._report_deaths(deaths, written)
        if written is None:
            return
        if written["first_step"] is not None and written["attempt"] != self._attempt:
            if self._attempt or self._died_before_first_step:
                self._report_restart(written, deaths)
            self._attempt = written["attempt"]
        if not written["step"]:
            return
        metrics = written["metrics"]
        if metrics.get("validation/epoch", 0.0) > self._epoch:
            self._epoch = metrics["validation/epoch"]
            line = f"epoch {self._epoch:.0f} of {written['epochs']}: {_split_line(metrics, 'validation')}"
            values, now = split_metrics(metrics, "validation"), time.monotonic()
            # As JSON each epoch, as text the last, and of short ones as many as can be read.
            if is_json() or self._epoch >= written["epochs"] or now - self._last_epoch >= EPOCH_SECONDS:
                self._last_epoch = now
                self.say(line, "epoch", epoch=int(self._epoch), epochs=written["epochs"], **metric_fields(values))
        self._progress.show(written["step"], written["steps"], _progress_line(written), metrics=numbers_only(metrics))

    def say(self, line: str, event: str = "message", **values: Any) -> None:
        self._progress.say(line, event, **values)

    def _report_deaths(self, deaths: Mapping[str, Any], written: Mapping[str, Any] | None) -> None:
        when = f" at about step {written['step']:,} of {written['steps']:,}" if written and written["step"] else ""
        if written is None or written["first_step"] is None:
            when, self._died_before_first_step = " before the first step", True
        workers, cut_off = deaths["workers"], deaths.get("cut_off", [])
        cause = "; ".join(dict.fromkeys(workers.values())) or f"{_worker_list(cut_off)} lost the connection to it"
        line = f"{_worker_list(workers)} died{when}: {cause}"
        self.say(line, "died", workers=dict(workers), cut_off=cut_off)
        self.record_death(line)

    def _report_restart(self, written: Mapping[str, Any], deaths: Mapping[str, Any] | None) -> None:
        """Another group of workers has begun: after a death, or with another number of workers."""
        step, steps = written["first_step"], written["steps"]
        position = f"back at step {step:,} of {steps:,}" if step else "back at the first step"
        if deaths is None:
            self.say(f"the workers have restarted; {position}", "restart", workers=[], step=step, steps=steps)
            return
        seconds = max(time.time() - deaths["time"], 0.0)
        fields = {"workers": [int(rank) for rank in deaths["workers"]], "step": step, "steps": steps, "seconds": round(seconds, 1)}
        self.say(f"{_worker_list(deaths['workers'])} died; {position} in {seconds:.0f} s", "restart", **fields)


def _worker_list(workers: Iterable[str | int]) -> str:
    ranks = sorted(map(int, workers))
    if not ranks:
        return "a worker"
    listed = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"worker{'s' if len(ranks) > 1 else ''} {listed}"


def _progress_line(written: Mapping[str, Any]) -> str:
    metrics, step, steps = written["metrics"], written["step"], written["steps"]
    parts = [f"step {step:,} of {steps:,}"]
    if "train/loss" in metrics:
        parts.append(f"loss {metrics['train/loss']:.4g}")
    if "train/step_seconds" in metrics:
        seconds_left = (steps - step) * metrics["train/step_seconds"]
        parts += [f"{metrics['train/rows_per_second']:,.0f} rows/s", f"{seconds_left // 60:.0f}:{seconds_left % 60:02.0f} left"]
    return "  ".join(parts)


def _split_line(metrics: Mapping[str, Value], split: str) -> str:
    """The metrics of a split as text: `validation auc 0.924, accuracy 0.868`."""
    return f"{split} " + ", ".join(
        f"{name} {format_value(value)}" for name, value in split_metrics(metrics, split).items() if name != "epoch"
    )


def split_metrics(metrics: Mapping[str, Value], split: str) -> dict[str, Value]:
    return {name.removeprefix(f"{split}/"): value for name, value in metrics.items() if name.startswith(f"{split}/")}


def metric_fields(metrics: Mapping[str, Value]) -> dict[str, Any]:
    """Numbers, and apart from them the reasons of metrics that have none, if there are such."""
    reasons = missing_reasons(metrics)
    return {"metrics": numbers_only(metrics), **({"undefined": reasons} if reasons else {})}


def result_line(metrics: Mapping[str, Value]) -> str:
    """The metrics on the test split, or, without one, those on the validation split."""
    splits = [split for split in ("test", "validation") if split_metrics(metrics, split)]
    return _split_line(metrics, splits[0]) if splits else "no metrics"


def result_summary(run_id: str, experiment: str, uri: str, trained: Mapping[str, Any], model: str) -> str:
    splits = [split for split in ("validation", "test") if any(name.startswith(f"{split}/") for name in trained["metrics"])]
    rows, steps, seconds = trained["rows"], trained["steps"], trained["seconds"]
    best = f"best epoch, {trained['best_epoch']} of {trained['epochs']}"
    return "\n".join(
        [
            f"{show_count(rows, 'row')} in {show_count(steps, 'step')} and {seconds:.1f} s of training: "
            f"{rows / max(seconds, 1e-9):,.0f} rows/s",
            *(f"{best}: {_split_line(trained['metrics'], split)}" for split in splits),
            *([describe_decision(trained["decision"])] if trained.get("decision") else []),
            f"model {model}",
            f"run {run_id} of experiment {experiment} in {uri}",
            *trained["remarks"],
        ]
    )
