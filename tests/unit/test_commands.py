"""`lockstep` as a wheel installs it, and jobs/*.py: the same commands."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pipelines.commands import COMMANDS, main

ROOT = Path(__file__).parents[2]
NO_CONFIG = {"demo", "init", "diff"}
"""Commands that take no config."""
JOBS = {file.stem for file in (ROOT / "jobs").glob("*.py")} - NO_CONFIG


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a wheel of this checkout is installed, beside what the environment has. No index is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    shutil.copytree(ROOT / "pipelines", copy / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, copy], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def answer(site: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_a_wheel_has_every_file(site: Path) -> None:
    assert files(site) == files(ROOT)


def files(folder: Path) -> set[Path]:
    """Those of the package, what Python compiled left out."""
    return {file.relative_to(folder) for file in folder.glob("pipelines/**/*.*") if file.suffix != ".pyc"}


def test_its_entry_points_resolve_to_its_own_modules(site: Path) -> None:
    code = (
        "from importlib.metadata import distributions\n"
        f"(own,) = [found for found in distributions(path=[{str(site)!r}]) if found.name == 'lockstep-pipelines']\n"
        "for entry in own.entry_points: print(entry.name, entry.load().__code__.co_filename)"
    )
    assert answer(site, sys.executable, "-c", code).stdout.split() == ["lockstep", f"{site}/pipelines/commands.py"]


@pytest.mark.full
def test_lockstep_demo_runs_from_a_wheel_in_an_environment_of_its_own(site: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    (packages,) = tmp_path.glob("environment/lib/python*/site-packages")
    # A path that a .pth file adds is searched for packages; the .pth files in it, such as that of this checkout, are not read.
    (packages / "wheel.pth").write_text(f"{site}\n{sysconfig.get_path('purelib')}\n")
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")}
    variables |= {"LOCKSTEP_HOME": str(tmp_path), "PATH": f"{tmp_path}/environment/bin{os.pathsep}{os.environ['PATH']}"}
    command = [tmp_path / "environment/bin/python", site / "bin/lockstep", "demo", "--train.epochs", "2"]
    demo = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert demo.returncode == 0 and "\nmodel models:/" in demo.stdout, demo.stdout + demo.stderr
    assert (tmp_path / "mlflow.db").exists() and (tmp_path / "digits.yaml").exists()


def test_lockstep_lists_its_commands_which_are_the_jobs(site: Path) -> None:
    helped = answer(site, site / "bin/lockstep", "--help")
    assert helped.returncode == 0 and all(f"\n  {name} " in helped.stdout for name in COMMANDS)
    assert COMMANDS.keys() - NO_CONFIG == JOBS


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_fault_is_told_alike_by_both(site: Path, name: str) -> None:
    arguments = [str(ROOT / "conf/digits.yaml"), "--train.wrokers", "2"]
    by_job, by_lockstep = (
        answer(site, *command, *arguments) for command in ([sys.executable, ROOT / f"jobs/{name}.py"], [site / "bin/lockstep", name])
    )
    assert (by_job.returncode, by_job.stdout, by_job.stderr) == (2, "", by_lockstep.stderr)
    assert by_lockstep.returncode == 2 and "did you mean workers?" in by_lockstep.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_runs_its_own_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, list[str]]] = []
    for command in COMMANDS:
        monkeypatch.setitem(COMMANDS, command, lambda *arguments, command=command: calls.append((command, *arguments)))
    monkeypatch.setattr(sys, "argv", ["lockstep", name, "conf/digits.yaml", "--train.workers", "2"])
    monkeypatch.setattr("pipelines.command_line._exit_at_once", lambda: None)  # this process has more to do
    main()
    assert calls == [(name, f"lockstep {name}", ["conf/digits.yaml", "--train.workers", "2"])]


@pytest.mark.parametrize("arguments", [[], ["ETL"], ["conf/digits.yaml"]])
def test_another_command_is_refused(site: Path, arguments: list[str]) -> None:
    refused = answer(site, site / "bin/lockstep", *arguments)
    assert refused.returncode == 2 and refused.stderr.startswith("usage: lockstep COMMAND") and "Traceback" not in refused.stderr
