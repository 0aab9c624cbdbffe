"""Programs that are measured in turns: one runs at a time, with all that it started, and what runs on its way is not counted."""

import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import turns

COUNTS = """
import itertools, time
for step in itertools.count():
    print(time.time(), step, flush=True)
    time.sleep(0.01)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COUNTS!r}], start_new_session=True)"


def points(log: Path) -> turns.Points:
    lines = [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(float(when), int(steps)) for when, steps in lines]


def test_one_runs_at_a_time_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(turns, "SETTLE_SECONDS", 0.1)
    first_log, second_log = tmp_path / "one", tmp_path / "other"
    command, variables = [sys.executable, "-c", PARENT], dict(os.environ)
    with (
        turns.start_program(command, variables, first_log, lambda: points(first_log), 5) as first,
        turns.start_program(command, variables, second_log, lambda: points(second_log), 5) as second,
    ):
        before = points(first_log)
        time.sleep(0.2)
        assert points(first_log) == before, "it goes on while another starts"
        begun = time.time()
        turn_rates = turns.rates([first, second], 4, 0.3)
        assert all(len(turn) == 2 and min(turn) > 0 for turn in turn_rates)
        assert len(turn_rates) > 0
    names = [name for _, name in sorted((when, log.name) for log in (first_log, second_log) for when, _ in points(log) if when > begun)]
    assert sum(before != after for before, after in pairwise(names)) <= 2 * 4 + 2, "they ran at once"
    points_at_end = points(first_log), points(second_log)
    time.sleep(0.2)
    assert (points(first_log), points(second_log)) == points_at_end, "one outlives its measurement"


def test_a_program_that_ends_before_it_is_warm_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(SystemExit, match="exit 3\nno data"),
        turns.start_program([sys.executable, "-c", "print('no data', flush=True); raise SystemExit(3)"], dict(os.environ), log, list, 1),
    ):
        raise AssertionError("it was never warm")


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 10, 2.0), (1.5, 3.5, 4.0), (1.5, 2.5, None), (8, 9, None)])
def test_a_rate_is_of_the_points_inside_a_turn(start: float, end: float, expected: float | None) -> None:
    assert turns.rate([(1.0, 10), (2.0, 12), (3.0, 16), (5.0, 18)], start, end) == expected
