"""Power from the counters of a processor, which begin anew when they are full, and energy from power."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.report.run_data import RunData, TrainingAttempt, kilowatt_hours, run_events, worker_hours
from pipelines.report.run_page import run_page
from pipelines.tracking.history import History, Point
from pipelines.tracking.system import METRIC, ProcessorPower


def package(folder: Path, name: str, microjoules: int) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("1000000000\n")


def test_power_is_the_growth_of_the_counters_of_whole_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 10.0])
    monkeypatch.setattr("pipelines.tracking.system.time.monotonic", lambda: next(seconds))
    package(tmp_path, "intel-rapl:0", 999_000_000)
    package(tmp_path, "intel-rapl:0:0", 5)
    power = ProcessorPower(tmp_path)
    assert power.is_readable
    package(tmp_path, "intel-rapl:0", 99_000_000)
    package(tmp_path, "intel-rapl:0:0", 900_000_000)
    power.collect_metrics()
    assert power.aggregate_metrics() == {METRIC: pytest.approx(10.0)}, "100 joules in 10 seconds"


def test_without_counters_there_is_no_metric(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 0)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("not a number")
    power = ProcessorPower(tmp_path)
    assert not power.is_readable
    power.collect_metrics()
    assert power.aggregate_metrics() == {}


def run_with_curves(curves: dict[str, list[tuple[int, float, float]]], attempts: list[TrainingAttempt], **tags: str) -> RunData:
    points = {name: tuple(Point(*point) for point in values) for name, values in curves.items()}
    run = History("0" * 32, "toy", "toys", "FINISHED", False, 1_000.0, 1_100.0, tags, {}, points)
    return RunData(run, {}, {}, attempts, [], None, {})


def test_energy_is_power_over_time_and_a_gap_is_none() -> None:
    watts = [(0, 1_000.0, 100.0), (1, 1_036.0, 100.0), (2, 9_000.0, 100.0)]
    names = ("system/a/gpu_0_power_usage_watts", "system/a/gpu_1_power_usage_watts", f"system/b/{METRIC}")
    energy = kilowatt_hours(run_with_curves(dict.fromkeys(names, watts), []))
    assert energy == {"gpu": pytest.approx(0.002), "processor": pytest.approx(0.001)}
    assert kilowatt_hours(run_with_curves({"system/a/cpu": watts}, [])) == {}


def test_worker_hours_and_events_of_a_run_that_was_restarted_resized_and_silent() -> None:
    losses = [(step, 1_000.0 + step, 0.5) for step in range(1, 31)] + [(31, 1_080.0, 0.5), (32, 1_081.0, 0.5)]
    attempts = [TrainingAttempt(1_000.0, 0, 2), TrainingAttempt(1_020.5, 15, 1)]
    tags = {"stragglers": "worker 1: slow at data, from step 12", "standstill": "worker 0 is in backward of step 1,234", "other": "step 3"}
    run_data = run_with_curves({"train/loss": losses}, attempts, **tags)
    assert worker_hours(run_data) == pytest.approx((2 * 20 + 1 * 79.5) / 3_600)
    assert [(event.step, event.text) for event in run_events(run_data)] == [
        (0, "training began with 2 workers"),
        (15, "restarted at step 15, resized from 2 to 1 worker, 5 steps back, 0 s after the last point"),
        (30, "no point for 50 s after step 30"),
        (12, "stragglers: worker 1: slow at data, from step 12"),
        (1234, "standstill: worker 0 is in backward of step 1,234"),
    ]


def test_what_was_slower_than_it_could_be_is_on_the_page_with_the_reason() -> None:
    reason = "cross entropy is computed by operators of torch, since its kernels do not run here: no compiler"
    data = run_with_curves({"train/loss": [(3, 1_003.0, 0.5)]}, [TrainingAttempt(1_000.0, 0, 2, 1_010.0, 9, slower=[reason])])
    assert reason in [event.text for event in run_events(data)] and reason in run_page(data)


def test_an_interrupted_run_has_one_number_of_steps_and_of_hours_before_and_after_it_goes_on() -> None:
    """The group saved after step 33, three steps after the last point of its curves, and a second before the run was ended."""
    losses = [(step, 1_000.0 + step, 0.5) for step in range(3, 31, 3)]
    interrupted = run_with_curves(
        {"train/loss": losses, "validation/auc": [(20, 1_020.0, 0.9)]}, [TrainingAttempt(1_000.0, 0, 2, ended=1_035.0, steps=33)]
    )
    assert interrupted.steps == 33
    page = run_page(replace(interrupted, run=replace(interrupted.run, status="KILLED")))
    assert "up to step 33" in page and "<b>33</b><span>steps</span>" in page
    assert worker_hours(interrupted) == pytest.approx(2 * 35 / 3_600) and page.count("0.01944") == 2, "in large print, and as cost"
    later = [*losses, *((step, 5_000.0 + step, 0.5) for step in range(36, 61, 3))]
    resumed = run_with_curves({"train/loss": later}, [*interrupted.attempts, TrainingAttempt(5_010.0, 33, 1, ended=5_070.0, steps=60)])
    assert worker_hours(resumed) == pytest.approx((2 * 35 + 60) / 3_600) and resumed.steps == 60
