"""What a training prints about its progress: a bar on a terminal, a line every few seconds elsewhere."""

from io import StringIO
from typing import Any

import pytest

from pipelines import progress
from pipelines.launch.training_progress import TrainingProgress
from pipelines.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def point(step: int, **metrics: float) -> dict[str, Any]:
    shown = {"train/loss": 0.5, "train/step_seconds": 0.5, "train/rows_per_second": 1234.5}
    return {"step": step, "steps": 400, "epochs": 2, "metrics": {**shown, **metrics}}


def test_a_terminal_has_a_bar_with_rate_and_time_left() -> None:
    seen = Terminal()
    shown = TrainingProgress(Progress(seen))
    shown.show(None)
    shown.show(point(0))
    assert seen.getvalue() == ""
    shown.show(point(100))
    assert seen.getvalue() == f"\r{'█' * 6}{'░' * 18}  step 100 of 400  loss 0.5  1,234 rows/s  2:30 left"
    shown.show(point(200, **{"validation/epoch": 1.0, "validation/auc": 0.9}))
    assert "\repoch 1 of 2: validation auc 0.9\n\r████████████░" in seen.getvalue(), "above the bar"


def test_a_job_whose_output_is_shown_on_a_terminal_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_TERMINAL", "1")
    seen = StringIO()
    TrainingProgress(Progress(seen)).show(point(100))
    assert seen.getvalue().startswith("\r██████")


def test_elsewhere_there_are_lines_and_not_more_than_one_in_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    seen = StringIO()
    shown = TrainingProgress(Progress(seen))
    for seconds in (0.0, 1.0, 4.9, 5.0):
        now[0] = 100.0 + seconds
        shown.show(point(int(100 + seconds)))
    assert seen.getvalue().splitlines() == [
        f"step {step} of 400  loss 0.5  1,234 rows/s  {left} left" for step, left in ((100, "2:30"), (105, "2:28"))
    ]
    assert "\x1b" not in seen.getvalue()
