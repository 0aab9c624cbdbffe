"""What a person sees meanwhile: a bar with rate and time left on a terminal, a line every few seconds elsewhere."""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

LINE_SECONDS = 5.0
_BAR = 24


class Progress:
    """Prints what rank 0 writes into the run's directory."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._bar = self._stream.isatty() or bool(os.environ.get("LOCKSTEP_TERMINAL"))  # a job's output may be shown on one
        self._printed, self._epoch, self._shown = 0.0, 0.0, ""

    def show(self, progress: Mapping[str, Any] | None) -> None:
        """Print how far it is, if it is time to."""
        if progress is None or not progress["step"]:
            return
        metrics = progress["metrics"]
        if metrics.get("validation/epoch", 0.0) > self._epoch:
            self._epoch = metrics["validation/epoch"]
            self.say(f"epoch {self._epoch:.0f} of {progress['epochs']}: {_of_split(metrics, 'validation')}")
        line = _line(progress, self._bar)
        if self._bar:
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()
        elif line != self._shown and time.monotonic() - self._printed >= LINE_SECONDS:
            self._printed, self._shown = time.monotonic(), line
            print(line, file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        print(f"\r\x1b[K{line}" if self._bar else line, file=self._stream, flush=True)


def _line(progress: Mapping[str, Any], bar: bool) -> str:
    metrics, step, steps = progress["metrics"], progress["step"], progress["steps"]
    done = "█" * round(_BAR * step / steps)
    parts = [
        f"{done:░<{_BAR}}" if bar else "",
        f"step {step:,} of {steps:,}",
        f"loss {metrics['train/loss']:.4g}" if "train/loss" in metrics else "",
    ]
    if "train/step_seconds" in metrics:
        left = (steps - step) * metrics["train/step_seconds"]
        parts += [f"{metrics['train/rows_per_second']:,.0f} rows/s", f"{left // 60:.0f}:{left % 60:02.0f} left"]
    return "  ".join(part for part in parts if part)


def _of_split(metrics: Mapping[str, float], split: str) -> str:
    """`validation auc 0.924, accuracy 0.868` of metrics by full name."""
    found = {name.removeprefix(f"{split}/"): value for name, value in metrics.items() if name.startswith(f"{split}/")}
    return f"{split} " + ", ".join(f"{name} {value:.4g}" for name, value in found.items() if name != "epoch")


def summary(run_id: str, experiment: str, uri: str, trained: Mapping[str, Any], model: str) -> str:
    """The last lines: what came of it, and where it is."""
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
