"""Whether a run should go on in another layout: the arithmetic, and the watch that reads a run's progress and asks its workers to save."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainings import training

from pipelines.config import Config, load
from pipelines.errors import TrainingError
from pipelines.launch import layout_watch
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.launch.layout_watch import READINGS, LayoutWatch, read_step
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
    parts: dict[str, Any] = dict.fromkeys(("attention_seconds", "elementwise_seconds", "optimizer_seconds", "data_seconds"), 0.0)
    step = replace(planned.step, **parts, matmul_seconds=computing, communication_seconds=exchange, bubble_seconds=bubble)
    return replace(planned, step=step)


ALONE, PAIR = candidate(1, 8.0), candidate(2, 4.0, 1.0)


def test_a_plan_that_is_right_stays_right() -> None:
    assert estimate_seconds(ALONE, PAIR, MeasuredStep(5.0, 1.0)) == pytest.approx(8.0)
    assert estimate_seconds(PAIR, ALONE, MeasuredStep(8.0, 0.0)) == pytest.approx(5.0)


def test_computing_and_exchanging_are_corrected_apart() -> None:
    slow_links = MeasuredStep(14.0, 10.0)
    assert estimate_seconds(ALONE, PAIR, slow_links) == pytest.approx(8.0), "links are none of the layout's that has one worker"
    assert estimate_seconds(candidate(4, 2.0, 1.5), PAIR, slow_links) == pytest.approx(2 + 15)
    assert estimate_seconds(ALONE, PAIR, MeasuredStep(9.0, 1.0)) == pytest.approx(16.0), "twice as slow a computer"
    assert estimate_seconds(candidate(2, 4.0, 1.0, bubble=2.0), PAIR, MeasuredStep(9.0, 1.0)) == pytest.approx(13.0)


def test_some_microseconds_of_waiting_are_no_limit_of_reading() -> None:
    assert estimate_seconds(ALONE, PAIR, MeasuredStep(14.0, 10.0, 1e-4)) == pytest.approx(8.0, rel=1e-3)
    change = find_change((PAIR, ALONE), {0: MeasuredStep(20.0, 16.0, 5e-5)}, 0, 1_000, 10.0)
    assert change is not None and change.position == 1


def test_a_strategy_that_does_not_tell_exchanging_apart_is_scaled_as_one() -> None:
    planned, other = candidate(2, 1.0, 4.0), candidate(4, 0.5, 2.0)
    assert estimate_seconds(other, planned, MeasuredStep(5.0, None)) == pytest.approx(2.5), "a plan that is right"
    assert estimate_seconds(other, planned, MeasuredStep(10.0, None)) == pytest.approx(5.0)


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
        assert change.position == 1 and change.step_seconds == pytest.approx(8.0)
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

    def __init__(self, folder: Path, replans: bool, config: Config | None = None) -> None:
        self.directory = RunDirectory(str(folder / "run"))
        self.lines: list[str] = []
        self.tags: dict[str, str] = {}
        self.config = config or training(folder)
        self._written = 0
        plan = LayoutPlan((PAIR, ALONE), self.place, replans)
        self.watch = LayoutWatch(plan, self.directory, self.lines.append, self.tags.update)
        self.watch.begin_group(self.config)

    def place(self, candidate: PlanCandidate) -> Config:
        train = self.config.train.model_copy(update={"workers": candidate.layout.workers})
        return self.config.model_copy(update={"train": train})

    def write(self, computing: float, exchange: float | None, **changes: Any) -> None:
        """A further reading, with some microseconds of waiting for rows."""
        self._written += 1
        metrics = {"train/step_seconds": 1e9, "time/forward_seconds": computing + self._written / 1e9, "time/data_seconds": 5e-5}
        metrics |= {} if exchange is None else {"time/exchange_seconds": exchange}
        written = {"attempt": "first", "first_step": 0, "step": 10 * self._written, "steps": 10_000, "metrics": metrics, **changes}
        self.directory.put_json(PROGRESS, written, durable=False)
        self.watch.poll()

    def begin_again(self) -> Config:
        self.directory.remove(STOP)
        return self.watch.begin_group(self.config)


@pytest.fixture(autouse=True)
def _tags_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_watch, "tag_in_background", lambda tag, tags: tag(tags))


def test_a_run_is_asked_to_save_and_goes_on_in_the_other_layout(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    run.write(99, 90, first_step=None)
    for computing in (500, 4, 5, 4):
        run.write(computing, 16)
    assert run.directory.has(STOP) and "a step takes 20 s, where the plan expects 5; 1 worker" in run.lines[-1]
    assert "the workers save first" in run.lines[-1] and run.tags["measured.step_seconds"] == "20"
    run.watch.move(40)
    assert "saved after step 40; the run goes on with 1 worker" in run.lines[-1]
    assert run.begin_again().train.max_workers == 1 and run.watch.change is None
    assert (run.tags["plan.step_seconds"], run.tags["workers"], run.tags["measured.step_seconds"]) == ("8", "1", "")


def test_a_layout_to_which_a_run_came_back_stays(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    for computing, exchange in ((4, 16), (40, None), (4, 900)):
        for _ in range(READINGS + 1):
            run.write(computing, exchange)
        if run.watch.change is not None:
            run.watch.move(1)
            run.begin_again()
    assert not run.directory.has(STOP) and len([line for line in run.lines if "goes on" in line]) == 2


def test_the_same_command_begins_in_the_layout_that_was_best(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    for computing, exchange in ((4, 16), (8, None)):
        for _ in range(READINGS + 1):
            run.write(computing, exchange)
        if run.watch.change is not None:
            run.watch.move(1)
            run.begin_again()
    assert not run.directory.has(STOP)
    second = Run(tmp_path, replans=True, config=run.config)
    assert second.watch.position == 1


def test_without_replan_it_is_said_once_with_what_changes_it(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=False)
    for _ in range(12):
        run.write(4, 16)
    assert len(run.lines) == 1 and "run the same command with --train.parallel.replan true" in run.lines[0]
    assert not run.directory.has(STOP) and run.tags["plan.better_layout"].startswith("1 worker")
    later = Run(tmp_path, replans=True, config=run.config)
    assert later.watch.position == 1, "the same command begins with it"
    assert later.watch.moves_back(TrainingError("no room")) and later.watch.position == 0
    by_flag = load("conf/adult.yaml", {"train.parallel": "auto"}), load("conf/adult.yaml", {"train.parallel.replan": True})
    assert [config.train.parallel.kind for config in by_flag] == ["auto", "auto"] and by_flag[1].train.parallel.replan


def test_a_layout_that_cannot_be_had_is_left_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    assert not run.watch.moves_back(TrainingError("no room")), "there is none to go back to"
    for _ in range(READINGS + 1):
        run.write(4, 16)
    run.watch.move(40)
    run.begin_again()
    assert run.watch.moves_back(TrainingError("Ray has no room for the workers")) and "the run goes back to 2 workers" in run.lines[-1]
    assert run.begin_again().train.max_workers == 2
    for _ in range(3 * READINGS):
        run.write(4, 16)
    assert not run.directory.has(STOP), "it is not tried again"
    assert Run(tmp_path, replans=True, config=run.config).watch.position == 0, "nor by the same command"
    run = Run(tmp_path / "later", replans=True)
    for _ in range(READINGS + 1):
        run.write(4, 16)
    run.watch.move(40)
    run.begin_again()
    run.write(8, None)
    assert not run.watch.moves_back(TrainingError("a worker died")), "it has taken steps"


def test_the_first_steps_and_repeated_readings_do_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path, replans=True)
    for _ in range(3 * READINGS):
        run._written = 0
        run.write(4, 16)
    assert not run.lines, "the same reading again"
    run = Run(tmp_path / "warm", replans=True)
    for computing in (9_999, *[4] * READINGS):
        run.write(computing, 1)
    assert not run.lines, "the first reading is of a start"
    run = Run(tmp_path / "restart", replans=True)
    for number in range(READINGS):
        run.write(4, 16)
        run.write(4, 16, attempt=f"attempt {number}")
    assert not run.lines, "workers that were started anew are measured anew"


def test_a_reading_s_step_is_the_sum_of_its_phases() -> None:
    phases = {"time/forward_seconds": 1.0, "time/backward_seconds": 2.0, "time/optimizer_seconds": 0.5, "time/data_seconds": 0.25}
    curve = {"train/step_seconds": 99.0}
    assert read_step({**curve, **phases, "time/exchange_seconds": 4.0}) == MeasuredStep(7.75, 4.0, 0.25)
    assert read_step({**curve, **phases}) == MeasuredStep(3.75, None, 0.25)
    assert read_step({**curve, "time/data_seconds": 0.25, "time/exchange_seconds": 0.1}) == MeasuredStep(99.0, None, 0.25)
