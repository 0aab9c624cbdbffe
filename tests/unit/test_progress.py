"""What a training prints about its progress: a bar on a terminal, a line every few seconds elsewhere."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext  # type: ignore[attr-defined]
from ray.exceptions import ActorDiedError

from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.worker_failures import describe_death
from pipelines.runtime import progress
from pipelines.runtime.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def point(step: int, **metrics: float) -> dict[str, Any]:
    metrics_so_far = {"train/loss": 0.5, "train/step_seconds": 0.5, "train/rows_per_second": 1234.5}
    return {"attempt": "one", "first_step": 0, "step": step, "steps": 400, "epochs": 2, "metrics": {**metrics_so_far, **metrics}}


def test_a_terminal_has_a_bar_with_rate_and_time_left() -> None:
    output = Terminal()
    training_progress = TrainingProgress(Progress(output))
    training_progress.show(None)
    training_progress.show(point(0))
    assert output.getvalue() == ""
    training_progress.show(point(100))
    assert output.getvalue() == f"\r{'█' * 6}{'░' * 18}  step 100 of 400  loss 0.5  1,234 rows/s  2:30 left"
    training_progress.show(point(200, **{"validation/epoch": 1.0, "validation/auc": 0.9}))
    assert "\repoch 1 of 2: validation auc 0.9\n\r████████████░" in output.getvalue(), "above the bar"


def test_a_job_whose_output_is_shown_on_a_terminal_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_TERMINAL", "1")
    output = StringIO()
    TrainingProgress(Progress(output)).show(point(100))
    assert output.getvalue().startswith("\r██████")


class Widget:
    """In place of tqdm's bar of a notebook, which needs ipywidgets."""

    widgets: list["Widget"] = []

    def __init__(self, desc: str, total: int, initial: int, **style: Any) -> None:
        self.n, self.total, self.texts, self.is_closed = initial, total, [desc], False
        Widget.widgets.append(self)

    def reset(self, total: int) -> None:
        self.total = total

    def set_description_str(self, text: str) -> None:
        self.texts.append(text)

    def close(self) -> None:
        self.is_closed = True


def test_a_notebook_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for is_kernel in (False, True):
        kernel: Any = ModuleType("ipykernel.kernelapp")
        kernel.IPKernelApp = SimpleNamespace(initialized=lambda is_kernel=is_kernel: is_kernel)
        monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", kernel)
        assert is_kernel or not progress.is_notebook(), "a library has imported it"
    assert progress.is_notebook() == (find_spec("ipywidgets") is not None), "without ipywidgets there are lines"
    monkeypatch.setattr(progress, "is_notebook", lambda: True)
    monkeypatch.setattr("tqdm.notebook.tqdm_notebook", Widget)
    bar = Progress()
    bar.show(1, 4, "a")
    bar.show(2, 8, "b")
    (widget,) = Widget.widgets
    assert (widget.n, widget.total, widget.texts) == (2, 8, ["a", "b"])
    bar.say("a line")
    assert widget.is_closed and capsys.readouterr().out == "a line\n"
    assert not Progress(StringIO()).on_terminal, "what goes to a file has no bar"


def test_elsewhere_there_are_lines_at_growing_intervals_and_none_of_a_small_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    output = StringIO()
    training_progress = TrainingProgress(Progress(output))
    for seconds in (0.0, 5.0, 9.9, 10.0, 29.9, 30.0, 69.9, 70.0, 129.9, 130.0, 189.9, 190.0):
        now[0] = 100.0 + seconds
        training_progress.show(point(int(100 + seconds)))
    assert [line.partition("  ")[0] for line in output.getvalue().splitlines()] == [f"step {s} of 400" for s in (110, 130, 170, 230, 290)]
    assert output.getvalue().startswith("step 110 of 400  loss 0.5  1,234 rows/s  2:25 left\n") and "\x1b" not in output.getvalue()


def test_of_short_epochs_some_are_printed_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pipelines.launch.training_progress.time.monotonic", lambda: now[0])
    output = StringIO()
    training_progress = TrainingProgress(Progress(output))
    for epoch in range(1, 13):
        now[0] += 0.3
        training_progress.show({**point(10 * epoch, **{"validation/epoch": float(epoch)}), "epochs": 12})
    assert [line.split()[1] for line in output.getvalue().splitlines()] == ["1", "8", "12"]


def test_a_death_and_the_restart_are_told_in_our_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    output = StringIO()
    training_progress = TrainingProgress(Progress(output))
    training_progress.show(point(300))
    dead = {"time": 1_000.0, "workers": {"1": "The worker died"}}
    for _ in range(2):
        training_progress.show(point(300), dead)
    monkeypatch.setattr("pipelines.launch.training_progress.time.time", lambda: 1_011.4)
    training_progress.show({**point(0), "attempt": "two", "first_step": None}, dead)
    for _ in range(2):
        training_progress.show({**point(0), "attempt": "two", "first_step": 200}, dead)
    assert output.getvalue().splitlines() == [
        "worker 1 died at about step 300 of 400: The worker died",
        "worker 1 died; back at step 200 of 400 in 11 s",
    ]


def test_a_death_before_the_first_step_is_told_and_recorded_and_so_is_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    output, recorded = StringIO(), list[str]()
    training_progress = TrainingProgress(Progress(output))
    training_progress.record_death = recorded.append
    dead = {"time": 1_000.0, "workers": {"1": "The worker died: by SIGKILL"}}
    training_progress.show(None, dead)
    monkeypatch.setattr("pipelines.launch.training_progress.time.time", lambda: 1_003.0)
    training_progress.show(point(0), dead)
    assert output.getvalue().splitlines() == [
        "worker 1 died before the first step: The worker died: by SIGKILL",
        "worker 1 died; back at the first step in 3 s",
    ]
    assert recorded == output.getvalue().splitlines()[:1]


@pytest.mark.parametrize(
    ("detail", "end"),
    [
        ("Worker unexpectedly exits with a connection error code 2. End of file. Some causes: (1) SIGKILL (2) SIGSEGV",
         "by SIGKILL, as the kernel sends where memory is full, or by a crash such as SIGSEGV"),
        ("Worker exits unexpectedly by a signal. SIGTERM is sent.", "before finishing this task: by SIGTERM"),
        ("The node was removed.", "before finishing this task."),
    ],
)  # fmt: skip
def test_a_death_names_the_signal_as_far_as_it_is_known(detail: str, end: str) -> None:
    error = ActorDiedError(ActorDiedErrorContext(error_message=f"Worker exit detail: {detail}", actor_id=b"a" * 16))
    assert describe_death(error).endswith(end)


def test_whoever_lost_the_connection_to_the_dead_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    output = StringIO()
    training_progress = TrainingProgress(Progress(output))
    training_progress.show(point(300))
    dead = {"time": 1_000.0, "workers": {}, "cut_off": [1, 2]}
    training_progress.show(point(300), dead)
    monkeypatch.setattr("pipelines.launch.training_progress.time.time", lambda: 1_011.4)
    training_progress.show({**point(0), "attempt": "two", "first_step": 200}, dead)
    assert output.getvalue().splitlines() == [
        "a worker died at about step 300 of 400: workers 1, 2 lost the connection to it",
        "a worker died; back at step 200 of 400 in 11 s",
    ]


def test_a_group_of_another_size_is_no_death() -> None:
    output = StringIO()
    training_progress = TrainingProgress(Progress(output))
    training_progress.show(point(0))
    training_progress.show({**point(0), "attempt": "two", "first_step": 40})
    assert output.getvalue() == "the workers have restarted; back at step 40 of 400\n"


@pytest.fixture
def speaking() -> Iterator[Callable[[progress.Way], None]]:
    yield progress.speak
    progress.speak("text")


def test_json_is_one_object_a_line(speaking: Callable[[progress.Way], None], capsys: pytest.CaptureFixture[str]) -> None:
    speaking("json")
    training_progress = TrainingProgress(Progress(Terminal()))
    training_progress.say("run 1 starts\non two lines")
    training_progress.show(point(100, **{"validation/epoch": 1.0, "validation/auc": 0.9}), {"time": 5.0, "workers": {"0": "x", "3": "y"}})
    training_progress.show({**point(0), "attempt": "two", "first_step": 7}, {"time": 5.0, "workers": {"0": "x", "3": "y"}})
    record = logging.LogRecord("pipelines", logging.WARNING, "", 0, "a %s", ("b\nc",), None)
    print(progress.JsonLines().format(record))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in events] == ["message", "died", "epoch", "progress", "restart", "log"]
    assert events[2]["metrics"] == {"epoch": 1.0, "auc": 0.9} and events[3]["done"] == 100 and events[3]["total"] == 400
    assert events[4]["workers"] == [0, 3] and events[4]["step"] == 7 and events[5]["text"] == "a b\nc"


def test_quiet_says_nothing(speaking: Callable[[progress.Way], None], capsys: pytest.CaptureFixture[str]) -> None:
    speaking("quiet")
    output = Terminal()
    training_progress = TrainingProgress(Progress(output))
    training_progress.say("run 1 starts")
    training_progress.show(point(100), {"time": 5.0, "workers": {"0": "x"}})
    progress.tell("result", "rows", rows=7)
    assert output.getvalue() == "" and capsys.readouterr().out == ""
