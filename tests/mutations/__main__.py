"""Whether the tests notice: puts faults into a copy of the code, one at a time, and runs the tests that have to fail then.

    python tests/mutations [--promises P5 P8] [--checkout FOLDER]

Only tests of `make test` are run. Exit code 1 if a fault goes unnoticed. A fault whose text is no longer in the code, or whose
tests cannot be run, is an error.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not full"]
PASSED, FAILED, NONE_COLLECTED = 0, 1, 5
"""Of pytest's exit codes; with another one no test has spoken. None are collected if `make test` leaves all of them out."""


@contextmanager
def copied(checkout: Path) -> Iterator[Path]:
    """The checkout's files in a temporary folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=checkout, capture_output=True, text=True, check=True
    )
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in filter(None, listed.stdout.split("\0")):
            if (checkout / name).is_file():
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, Path(folder, name))
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
        yield Path(folder)


@contextmanager
def put_into(folder: Path, fault: Fault) -> Iterator[None]:
    path = folder / fault.file
    sound = path.read_text()
    if sound.count(fault.text) != 1:
        sys.exit(f"{fault.file} has {sound.count(fault.text)} times, and not once: {fault.text}; mend tests/mutations/faults.py")
    path.write_text(sound.replace(fault.text, fault.instead))
    yield
    path.write_text(sound)


def find_failing_test(folder: Path, fault: Fault) -> str:
    """The first test that fails, empty if none does."""
    variables = {"LOCKSTEP_RAW": str(DATA), **os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with put_into(folder, fault):
        pytest_run = subprocess.run(
            [*PYTEST, *shlex.split(fault.tests)], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
    if pytest_run.returncode not in (PASSED, FAILED, NONE_COLLECTED):
        sys.exit(f"{fault.tests}: pytest ended with {pytest_run.returncode}\n{pytest_run.stdout[-3_000:]}{pytest_run.stderr[-1_000:]}")
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+?::\w+)", pytest_run.stdout, re.MULTILINE)
    return failures[0] if failures else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promises", nargs="+", default=sorted({fault.promise for fault in FAULTS}))
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose code and tests are tried, by default this one's")
    arguments = parser.parse_args()
    chosen, unnoticed = [fault for fault in FAULTS if fault.promise in arguments.promises], 0
    with copied(arguments.checkout) as folder:
        for fault in chosen:
            started = time.monotonic()
            test = find_failing_test(folder, fault)
            unnoticed += not test
            answer = f"noticed by {test}" if test else f"NOT NOTICED by {fault.tests}"
            print(f"{fault.promise} {fault.file}: {fault.instead.strip()[:60]!r}: {answer}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} faults are noticed")
    sys.exit(unnoticed > 0)


if __name__ == "__main__":
    main()
