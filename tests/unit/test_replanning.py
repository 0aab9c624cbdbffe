"""Whether a run should go on in another layout: the arithmetic, and the watch that reads a run's progress and asks its workers to save."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from trainings import training

from pipelines.config import Config
from pipelines.launch.layout_watch import READINGS, LayoutPlan, LayoutWatch
from pipelines.planning.candidates import PlanCandidate, TrainingJob, evaluate
from pipelines.planning.hardware import Cluster, read_hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.replanning import LEAST_GAIN, MeasuredStep, estimate_seconds, find_change
from pipelines.planning.transformer import parse_transformer
from pipelines.train.checkpoint.run_directory import PROGRESS, STOP, RunDirectory

ROWS = 64
HARDWARE = read_hardware("h100")
MODEL = parse_transformer("gpt2")


def candidate(workers: int, computing: float, exchange: float = 0.0, bubble: float = 0.0) -> PlanCandidate:
    """A candidate with these seconds of a step."""
    layout = ParallelLayout(replicate=workers, microbatch=ROWS // workers, full_copies=True)
    planned = evaluate(TrainingJob(MODEL, 1e6, ROWS), Cluster(HARDWARE, workers), layout)
    parts = dict.fromkeys(("attention_seconds", "elementwise_seconds", "optimizer_seconds", "data_seconds"), 0.0)
    step = replace(planned.step, **parts, matmul_seconds=computing, communication_seconds=exchange, bubble_seconds=bubble)
    return replace(planned, step=step)


ALONE, PAIR = candidate(1, 8.0), candidate(2, 4.0, 1.0)


def test_a_plan_that_is_right_stays_right() -> None:
    assert estimate_seconds(ALONE, PAIR, MeasuredStep(5.0, 1.0)) == pytest.approx(8.0)
    assert estimate_seconds(PAIR, ALONE, MeasuredStep(8.0)) == pytest.approx(5.0)


def test_computing_and_exchanging_are_corrected_apart() -> None:
    slow_links = MeasuredStep(14.0, 10.0)
    assert estimate_seconds(ALONE, PAIR, slow_links) == pytest.approx(8.0), "links are none of the layout's that has one worker"
    assert estimate_seconds(candidate(4, 2.0, 1.5), PAIR, slow_links) == pytest.approx(2 + 15)
    assert estimate_seconds(ALONE, PAIR, MeasuredStep(9.0, 1.0)) == pytest.approx(16.0), "twice as slow a computer"
    assert estimate_seconds(candidate(2, 4.0, 1.0, bubble=2.0), PAIR, MeasuredStep(9.0, 1.0)) == pytest.approx(13.0)


def test_workers_that_wait_for_rows_read_at_that_rate_in_any_number() -> None:
    waiting = MeasuredStep(40.0, 1.0, 35.0)
    assert estimate_seconds(ALONE, PAIR, waiting) == pytest.approx(80.0), "one reads all rows"
    assert estimate_seconds(candidate(4, 2.0, 1.0), PAIR, waiting) == pytest.approx(20.0)
    assert estimate_seconds(candidate(32, 0.2, 30.0), PAIR, waiting) == pytest.approx(30.2), "the links are slower than the rows"


@pytest.mark.parametrize(
    ("steps_left", "restart_seconds", "is_worth_it"),
    [(1_000, 100.0, True), (10, 130.0, False), (0, 0.0, False), (1_000, 1e9, False)],
)
def test_a_change_saves_more_than_the_restart(steps_left: int, restart_seconds: float, is_worth_it: bool) -> None:
    change = find_change((PAIR, ALONE), {0: MeasuredStep(20.0, 16.0)}, 0, steps_left, restart_seconds)
    assert (change is not None) == is_worth_it
    if change:
        assert (change.position, change.step_seconds) == (1, pytest.approx(8.0))
        assert change.saved_seconds == pytest.approx(steps_left * 12 - restart_seconds)


def test_a_gain_within_the_error_of_a_plan_changes_nothing() -> None:
    measured = MeasuredStep(8.0 / (1 - LEAST_GAIN) - 0.01, 8.0 / (1 - LEAST_GAIN) - 4.01)
    assert find_change((PAIR, ALONE), {0: measured}, 0, 10**9, 1.0) is None
    assert find_change((PAIR, ALONE), {0: replace(measured, step_seconds=10.0, exchange_seconds=6.0)}, 0, 10**9, 1.0)


def test_what_was_measured_counts_more_than_what_was_planned() -> None:
    steps = {0: MeasuredStep(20.0, 16.0), 1: MeasuredStep(30.0)}
    back = find_change((PAIR, ALONE), steps, 1, 1_000, 10.0)
    assert back is not None and (back.position, back.step_seconds) == (0, 20.0)
    assert find_change((PAIR, ALONE), steps, 0, 1_000, 10.0) is None


class Run:
    """A watch, and the progress that it reads."""

    def __init__(self, folder: Path, replans: bool) -> None:
        self.directory, self.lines, self.tags = RunDirectory(str(folder / "run")), [], {}
        config = training(folder)

        def place(candidate: PlanCandidate) -> Config:
            return config.model_copy(update={"train": config.train.model_copy(update={"workers": candidate.layout.workers})})

        plan = LayoutPlan((PAIR, ALONE), 0, place, replans)
        self.lines: list[str]
        self.tags: dict[str, str]
        self.watch = LayoutWatch(plan, self.directory, self.lines.append, self._tag)
        self.watch.begin_group()

    def _tag(self, tags: Mapping[str, str]) -> None:
        self.tags.update(tags)

    def write(self, step: int, seconds: float, exchange: float, **changes: Any) -> None:
        metrics = {"train/step_seconds": seconds, "time/exchange_seconds": exchange, "time/forward_seconds": 1 + step / 1e6}
        written = {"first_step": 0, "step": step, "steps": 10_000, "metrics": metrics, **changes}
        self.directory.put_json(PROGRESS, written, durable=False)
        self.watch.poll()

    def take(self, seconds: list[float], exchange: float, first: int = 10) -> None:
        for step, reading in zip(accumulate([first] + [10] * len(seconds)), seconds, strict=False):
            self.write(step, reading, exchange)


def test_a_run_is_asked_to_save_and_goes_on_in_the_other_layout(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    run.write(0, 99, 90, first_step=None)
    run.take([500, 20, 21, 20], 16)
    assert run.directory.has(STOP) and "a step takes 20 s, where the plan expects 5; 1 worker" in run.lines[-1]
    assert "the workers save first" in run.lines[-1] and run.tags["measured.step_seconds"] == "20"
    assert run.watch.go_on(40).train.max_workers == 1 and "saved after step 40; the run goes on with 1 worker" in run.lines[-1]
    run.watch.begin_group()
    assert run.tags["plan.step_seconds"] == "8" and run.watch.change is None


def test_a_layout_to_which_a_run_came_back_stays(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    for number, seconds in enumerate([20.0, 40.0, 900.0]):
        run.directory.remove(STOP)
        run.take([seconds] * (READINGS + 1), 16.0 if number != 1 else 0.0, first=100 * (number + 1))
        if run.watch.change is not None:
            run.watch.go_on(1)
            run.watch.begin_group()
    assert not run.directory.has(STOP) and len([line for line in run.lines if "goes on" in line]) == 2


def test_without_replan_it_is_said_once_with_what_changes_it(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=False)
    run.take([20.0] * 12, 16)
    assert len(run.lines) == 1 and "run the same command with train.parallel.replan" in run.lines[0]
    assert not run.directory.has(STOP) and run.tags["plan.better_layout"].startswith("1 worker")


def test_the_first_steps_and_repeated_readings_do_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    for _ in range(3 * READINGS):
        run.write(10, 20.0, 16.0)
    assert not run.lines, "the same reading again"
    run = Run(tmp_path / "warm", replans=True)
    run.take([9_999.0] + [5.0] * READINGS, 1.0)
    assert not run.lines, "the first reading is of a start"
