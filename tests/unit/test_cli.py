"""The jobs' command lines as a user meets them: help and config errors answer at once, without a traceback."""

import logging
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked_commands import run_command

from pipelines import command_line

ROOT = Path(__file__).parents[2]
JOBS = sorted(f"jobs/{file.name}" for file in ROOT.glob("jobs/*.py") if file.stem != "diff")  # which takes versions


def start(*command: str) -> subprocess.CompletedProcess[str]:
    """The answer of a process that imports all it needs."""
    started = time.perf_counter()
    command_result = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    print(f"{' '.join(command)}: exit {command_result.returncode} in {time.perf_counter() - started:.2f} s")
    return command_result


def answer(*command: str) -> subprocess.CompletedProcess[str]:
    """That of one that has imported most of it: a start for each of a hundred answers took half a minute."""
    return run_command(*command, folder=ROOT)


COMMANDS = [*JOBS, "cluster/submit.py", "cluster/serve.py", "cluster/look.py"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_of_its_help_may_leave(command: str) -> None:
    """As in `--help | head -1`: here it leaves before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    file = [] if command.startswith("cluster") else ["conf/adult.yaml"]
    command_result = subprocess.run(
        [sys.executable, command, *file, "--help"], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    os.close(writing)
    assert command_result.returncode in (0, 141) and command_result.stderr == ""  # argparse takes no notice, and exits with 0


@pytest.mark.parametrize("job", JOBS)
def test_help_without_a_file_says_what_comes_first(job: str) -> None:
    command_result = start(job, "--help")
    assert (command_result.returncode, command_result.stderr) == (0, "")
    first = r" CONF\.yaml( [-([].*)?| \[CONF\.yaml\] \[-.*\]| \[CONF\.yaml \.\.\.\] \[RUN_ID \.\.\.\]"  # and its own flags; or runs
    assert re.match(rf"usage: {re.escape(job)}({first}) \[--section\.setting VALUE \.\.\.\]( \[--output FILE\])?\n", command_result.stdout)


@pytest.mark.parametrize("job", JOBS)
def test_help_shows_settings_with_the_file_s_values(job: str) -> None:
    command_result = answer(job, "conf/adult.yaml", "--help", "all", "--train.lr", "0.0625")
    assert (command_result.returncode, command_result.stderr) == (0, "")
    for text in ("--train.workers", "--train.lr", "0.0625", "--task.hidden", "--dataset.path", "Logical workers"):
        assert text in command_result.stdout


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--train.lr", "-1"], "--train.lr: must be greater than 0 (got -1)"),
        (["--train.wrokers", "2"], "--train.wrokers: no such setting; did you mean workers? (got 2)"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(job: str, flags: list[str], line: str) -> None:
    command_result = answer(job, "conf/adult.yaml", *flags)
    assert (command_result.returncode, command_result.stdout, command_result.stderr) == (2, "", f"{line}\n")


@pytest.mark.parametrize("job", JOBS)
def test_a_wrong_key_in_a_file_is_one_line_and_exit_code_2(job: str, tmp_path: Path) -> None:
    file = tmp_path / "adult.yaml"
    file.write_text((ROOT / "conf/adult.yaml").read_text().replace("\ntrain:", "\ntrian:", 1))
    command_result = answer(job, str(file))
    assert (command_result.returncode, command_result.stdout) == (2, "")
    (line,) = command_result.stderr.splitlines()
    assert line.startswith(f"{file}: trian: no such setting; did you mean train?")


@pytest.mark.parametrize("job", [job for job in JOBS if job != "jobs/doctor.py"])  # which then examines the machine alone
def test_without_a_file_it_says_so(job: str) -> None:
    command_result = answer(job)
    assert command_result.returncode == 2 and "(got nothing)" in command_result.stderr and "Traceback" not in command_result.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_task_of_one_s_own_is_found_in_the_working_folder(job: str, tmp_path: Path) -> None:
    (tmp_path / "churn").mkdir()
    settings = "from typing import ClassVar\nfrom pipelines.config import TaskSettings\n"
    settings += "class Churn(TaskSettings):\n    implementation: ClassVar[str] = 'churn.task:Churn'\n    horizon: int = 30\n"
    (tmp_path / "churn/settings.py").write_text(settings)
    task = "{kind: churn.settings:Churn, horizon: 7}"
    command_result = run_command(str(ROOT / job), str(ROOT / "conf/adult.yaml"), "--task", task, "--help", "task", folder=tmp_path)
    assert (command_result.returncode, command_result.stderr) == (0, "") and "--task.horizon" in command_result.stdout


def test_a_port_in_use_or_no_port_at_all_is_told_before_the_ui_starts(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    environment = {**os.environ, "LOCKSTEP_HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for argument, code, message in ((str(port), 1, f"port {port} is in use"), ("http", 2, "PORT is http; it must be a number")):
            command_result = subprocess.run(
                [ROOT / "cluster/local/ui.sh", argument], env=environment, capture_output=True, text=True, timeout=30, check=False
            )
            assert (command_result.returncode, command_result.stdout) == (code, "") and command_result.stderr.startswith(message)


def test_the_ui_ends_with_its_server_and_takes_a_relative_home(tmp_path: Path) -> None:
    (tmp_path / "a home").mkdir()
    (tmp_path / "a home/mlflow.db").touch()
    (tmp_path / "mlflow").write_text('#!/bin/bash\necho "$*" >&2\nsleep 1\nexit 3\n')
    (tmp_path / "mlflow").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command_result = subprocess.run(
        [ROOT / "cluster/local/ui.sh", str(port)],
        cwd=tmp_path, env={**os.environ, "PATH": path, "LOCKSTEP_HOME": "a home"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (command_result.returncode, command_result.stdout) == (1, "")
    assert f"--backend-store-uri sqlite:///{tmp_path}/a home/mlflow.db " in command_result.stderr
    assert command_result.stderr.endswith("MLflow's server has ended before it answered; its messages are above\n")


def test_there_are_jobs() -> None:
    assert {"jobs/etl.py", "jobs/train.py"} <= set(JOBS)


@pytest.mark.parametrize("job", ["jobs/etl.py", "jobs/train.py"])
def test_a_command_speaks_in_one_way(job: str) -> None:
    command_result = answer(job, "conf/adult.yaml", "--quiet", "--json")
    assert (command_result.returncode, command_result.stdout) == (2, "")
    assert command_result.stderr == "--quiet and --json exclude each other; give one of them\n"
    command_result = answer(job, "--json", "conf/adult.yaml", "--train.lr", "-1")
    assert (command_result.returncode, command_result.stdout) == (2, "") and command_result.stderr.startswith("--train.lr:")


def test_verbose_logs_details_and_quiet_no_more_than_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runtime.progress.speak", lambda way: None)  # the way of this process stays as it is
    logger = logging.getLogger("pipelines")
    level_before = logger.level
    try:
        for flag, level in (("--verbose", logging.DEBUG), ("--quiet", logging.WARNING)):
            assert command_line.split_output_flag(["a.yaml", flag]) == (["a.yaml"], flag)
            command_line.speak_as(flag)
            assert logger.level == level
    finally:
        logger.setLevel(level_before)
