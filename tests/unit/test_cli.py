"""The jobs' command lines as a user meets them: help and config errors answer at once, without a traceback."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOBS = sorted(f"jobs/{file.name}" for file in ROOT.glob("jobs/*.py"))


def answer(*command: str) -> subprocess.CompletedProcess[str]:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    print(f"{' '.join(command)}: exit {done.returncode} in {time.perf_counter() - start:.2f} s")
    return done


COMMANDS = [*JOBS, "cluster/submit.py", "cluster/serve.py", "cluster/look.py"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_of_its_help_may_leave(command: str) -> None:
    """As in `--help | head -1`: here it leaves before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    file = [] if command.startswith("cluster") else ["conf/adult.yaml"]
    done = subprocess.run(
        [sys.executable, command, *file, "--help"], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    os.close(writing)
    assert done.returncode in (0, 141) and done.stderr == ""  # argparse takes no notice, and exits with 0


@pytest.mark.parametrize("job", JOBS)
def test_help_without_a_file_says_what_comes_first(job: str) -> None:
    done = answer(job, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    first = r" CONF\.yaml( [-(].*)?| RUN_ID_OR_CONF\.yaml \.\.\."  # and flags of the command itself; or runs
    assert re.match(rf"usage: {re.escape(job)}({first}) \[--section\.setting VALUE \.\.\.\]( \[--out FILE\])?\n", done.stdout)


@pytest.mark.parametrize("job", JOBS)
def test_help_shows_settings_with_the_file_s_values(job: str) -> None:
    done = answer(job, "conf/adult.yaml", "--help", "--train.lr", "0.0625")
    assert (done.returncode, done.stderr) == (0, "")
    for shown in ("--train.workers", "--train.lr", "0.0625", "--task.hidden", "--dataset.path", "Logical workers"):
        assert shown in done.stdout


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--train.lr", "-1"], "--train.lr: must be greater than 0 (got -1)"),
        (["--train.wrokers", "2"], "--train.wrokers: no such setting; did you mean workers? (got 2)"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(job: str, flags: list[str], line: str) -> None:
    done = answer(job, "conf/adult.yaml", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")


@pytest.mark.parametrize("job", JOBS)
def test_a_wrong_key_in_a_file_is_one_line_and_exit_code_2(job: str, tmp_path: Path) -> None:
    file = tmp_path / "adult.yaml"
    file.write_text((ROOT / "conf/adult.yaml").read_text().replace("\ntrain:", "\ntrian:", 1))
    done = answer(job, str(file))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{file}: trian: no such setting; did you mean train?")


@pytest.mark.parametrize("job", JOBS)
def test_without_a_file_it_says_so(job: str) -> None:
    done = answer(job)
    assert done.returncode == 2 and "(got nothing)" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_task_of_one_s_own_is_found_in_the_working_folder(job: str, tmp_path: Path) -> None:
    (tmp_path / "churn").mkdir()
    settings = "from typing import ClassVar\nfrom pipelines.config import TaskSettings\n"
    settings += "class Churn(TaskSettings):\n    implementation: ClassVar[str] = 'churn.task:Churn'\n    horizon: int = 30\n"
    (tmp_path / "churn/settings.py").write_text(settings)
    task = "{kind: churn.settings:Churn, horizon: 7}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / job, ROOT / "conf/adult.yaml", "--task", task, "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "--task.horizon" in done.stdout


def test_a_port_in_use_or_no_port_at_all_is_told_before_the_ui_starts(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    environment = {**os.environ, "LOCKSTEP_HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for given, code, said in ((str(port), 1, f"port {port} is in use"), ("http", 2, "PORT is http; it must be a number")):
            done = subprocess.run(
                [ROOT / "cluster/local/ui.sh", given], env=environment, capture_output=True, text=True, timeout=30, check=False
            )
            assert (done.returncode, done.stdout) == (code, "") and done.stderr.startswith(said)


def test_there_are_jobs() -> None:
    assert {"jobs/etl.py", "jobs/train.py"} <= set(JOBS)


@pytest.mark.parametrize("job", ["jobs/etl.py", "jobs/train.py"])
def test_a_command_speaks_in_one_way(job: str) -> None:
    done = answer(job, "conf/adult.yaml", "--quiet", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--quiet and --json exclude each other; give one of them\n"
    done = answer(job, "--json", "conf/adult.yaml", "--train.lr", "-1")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("--train.lr:")
