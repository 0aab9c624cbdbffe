"""What `make` does again after a change, and which folder its commands have as LOCKSTEP_HOME."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAMPS = ("uv", "packages", "torch", "project", "", "spark", "server", "docs")


def plain_environment() -> dict[str, str]:
    """Variables without those of a make that has started these tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


def print_commands(folder: Path, *arguments: str) -> str:
    """The commands that make would run, with an environment in the folder that is up to date."""
    future = 4_000_000_000
    for age, name in enumerate(STAMPS):
        stamp = folder / f"installed-{name}".rstrip("-")
        stamp.touch()
        os.utime(stamp, (future + age, future + age))
    command = ["make", "--no-print-directory", "--dry-run", f"VENV={folder}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("changed", "scripts"),
    [
        ("README.md", set()),
        ("cluster/local/quiet_spark.py", {"quiet_spark.py", "class_archive.py"}),
        ("cluster/local/spark/log4j2.properties", {"quiet_spark.py", "class_archive.py"}),
        ("pipelines/spark/java_options.py", {"quiet_spark.py", "class_archive.py"}),
        ("cluster/local/class_archive.py", {"class_archive.py"}),
        ("constraints.txt", {"quiet_spark.py", "class_archive.py", "pip install"}),
    ],
)
def test_a_change_repeats_its_own_step_alone(changed: str, scripts: set[str], tmp_path: Path) -> None:
    targets = [f"{tmp_path}/installed-{name}" for name in ("spark", "server", "docs")]
    printed = print_commands(tmp_path, f"--what-if={changed}", *targets)
    assert {script for script in ("quiet_spark.py", "class_archive.py", "pip install") if script in printed} == scripts, printed


@pytest.mark.parametrize(
    ("home", "folder"), [("", ROOT), ("runs", ROOT / "runs"), ("two words", ROOT / "two words"), ("/two words", "/two words")]
)
@pytest.mark.parametrize("is_argument", [False, True])
def test_commands_have_an_absolute_home(home: str, folder: Path | str, is_argument: bool, tmp_path: Path) -> None:
    (tmp_path / "rules.mk").write_text(f"include {ROOT}/Makefile\nshow-home:\n\t@printenv LOCKSTEP_HOME\n")
    command = ["make", "--no-print-directory", f"--file={tmp_path}/rules.mk", "show-home", *([f"LOCKSTEP_HOME={home}"] * is_argument)]
    environment = {**plain_environment(), "LOCKSTEP_HOME": "" if is_argument else home}
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"{folder}\n"
