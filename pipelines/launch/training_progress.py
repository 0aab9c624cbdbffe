"""Prints a training's progress, the metrics of each epoch, and a summary."""

from collections.abc import Mapping
from typing import Any

from pipelines.progress import Progress


class TrainingProgress:
    """Prints the progress that rank 0 writes into the run's directory."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or Progress()
        self._epoch = 0.0

    def show(self, written: Mapping[str, Any] | None) -> None:
        """Print the metrics of a new epoch, and the progress if it is due."""
        if written is None or not written["step"]:
            return
        metrics = written["metrics"]
        if metrics.get("validation/epoch", 0.0) > self._epoch:
            self._epoch = metrics["validation/epoch"]
            self.say(f"epoch {self._epoch:.0f} of {written['epochs']}: {_of_split(metrics, 'validation')}")
        self._progress.show(written["step"], written["steps"], _line(written))

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._progress.say(line)


def _line(written: Mapping[str, Any]) -> str:
    metrics, step, steps = written["metrics"], written["step"], written["steps"]
    parts = [f"step {step:,} of {steps:,}"]
    if "train/loss" in metrics:
        parts.append(f"loss {metrics['train/loss']:.4g}")
    if "train/step_seconds" in metrics:
        left = (steps - step) * metrics["train/step_seconds"]
        parts += [f"{metrics['train/rows_per_second']:,.0f} rows/s", f"{left // 60:.0f}:{left % 60:02.0f} left"]
    return "  ".join(parts)


def _of_split(metrics: Mapping[str, float], split: str) -> str:
    """The metrics of a split as text: `validation auc 0.924, accuracy 0.868`."""
    found = {name.removeprefix(f"{split}/"): value for name, value in metrics.items() if name.startswith(f"{split}/")}
    return f"{split} " + ", ".join(f"{name} {value:.4g}" for name, value in found.items() if name != "epoch")


def summary(run_id: str, experiment: str, uri: str, trained: Mapping[str, Any], model: str) -> str:
    """The last lines: the result, and where it is logged."""
    splits = [split for split in ("validation", "test") if any(name.startswith(f"{split}/") for name in trained["metrics"])]
    rows, steps, seconds = trained["rows"], trained["steps"], trained["seconds"]
    best = f"best epoch, {trained['best_epoch']} of {trained['epochs']}"
    return "\n".join(
        [
            f"{rows:,} rows in {steps:,} steps and {seconds:.1f} s of training: {rows / max(seconds, 1e-9):,.0f} rows/s",
            *(f"{best}: {_of_split(trained['metrics'], split)}" for split in splits),
            f"model {model}",
            f"run {run_id} of experiment {experiment} in {uri}",
        ]
    )
