"""The planner beside published runs, within loose bounds; `python -m benchmarks.planning.published` has the figures."""

from statistics import median

import pytest

from benchmarks.planning.published import fit, predict, processor, relative_error, tenth
from benchmarks.planning.published_runs import PublishedRun, further_runs, runs_to_predict

RUNS, FURTHER = runs_to_predict(), further_runs()
FRACTIONS = fit([*tenth(RUNS, 0), *tenth([run for run in FURTHER if processor(run) == "a100"], 0)])


@pytest.mark.parametrize("runs", [RUNS, FURTHER], ids=["published", "further"])
def test_throughput_is_predicted_within_bounds(runs: list[PublishedRun]) -> None:
    errors = [abs(relative_error(run, FRACTIONS)) for run in runs]
    assert median(errors) <= 0.12 and max(errors) <= 0.3


@pytest.mark.parametrize("runs", [RUNS, FURTHER], ids=["published", "further"])
def test_memory_is_predicted_within_bounds(runs: list[PublishedRun]) -> None:
    errors = [abs(predict(run, FRACTIONS).memory_gib / run.memory_gib - 1) for run in runs if run.memory_gib]
    assert len(errors) >= 6 and max(errors) <= 0.15


def test_a_fraction_of_the_other_page_predicts_too() -> None:
    for source, target in (("h100", "h100_96gb"), ("h100_96gb", "h100")):
        fraction = fit(run for run in RUNS if processor(run) == source)[source]
        errors = [abs(relative_error(run, {target: fraction})) for run in RUNS if processor(run) == target]
        assert median(errors) <= 0.12


def test_the_sheets_have_the_fractions_that_were_fitted() -> None:
    runs = [*RUNS, *(run for run in FURTHER if processor(run) == "a100")]
    fitted = fit(runs)
    for run in runs:
        assert run.cluster.hardware.achieved.matmul.fraction == pytest.approx(fitted[processor(run)], abs=0.015)
