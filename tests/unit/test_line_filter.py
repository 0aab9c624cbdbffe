"""Lines of Java and Ray that each start prints are held back, and visible when the command fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runtime.output import LineFilter, filtered_errors

JAVA = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_routine_lines_are_held_back_however_they_are_cut(size: int) -> None:
    printed = JAVA + b"WARNING: a fault\n" + JAVA + b"last"
    lines = LineFilter()
    visible = b"".join(lines.feed(printed[place : place + size]) for place in range(0, len(printed), size)) + lines.remainder
    assert (visible, lines.routine_lines) == (b"WARNING: a fault\nlast", JAVA * 2)


def test_a_bar_is_passed_on_at_once() -> None:
    assert LineFilter().feed("\r██░  7 of 9".encode()) == "\r██░  7 of 9".encode()


def test_a_command_s_errors_pass_through(capfd: pytest.CaptureFixture[str]) -> None:
    code = f"import sys; sys.stderr.write({JAVA.decode()!r} + 'error: no space')"
    with filtered_errors() as (errors, lines):
        subprocess.run([sys.executable, "-c", code], stderr=errors, check=True)
    assert capfd.readouterr().err == "error: no space" and lines.routine_lines == JAVA


@pytest.mark.parametrize(
    ("line", "is_routine"),
    [
        ("2026-11-26 10:45:04,003\tINFO job_manager.py:581 -- Runtime env is setting up.\n", True),
        ("Running entrypoint for job lockstep-1126-104504-6584: python jobs/train.py conf/digits.yaml\n", True),
        ("2026-11-26 10:45:04,003\tERROR job_manager.py:581 -- Runtime env setup failed\n", False),
        ("epoch 2 of 20: validation accuracy 0.9071\n", False),
    ],
)
def test_of_a_job_s_output_ray_s_routine_is_left_out(line: str, is_routine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "cluster"))
    from submit import ROUTINE

    assert bool(ROUTINE.match(line)) == is_routine
