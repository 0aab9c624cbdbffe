"""Commands in forks of a process that has imported what all of them do: starting an interpreter for each took ten times as long."""

import os
import runpy
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

from groups import FORKING

SECONDS = 120.0


def run_command(script: str, *arguments: str, folder: Path) -> CompletedProcess[str]:
    """The exit code and the output of `python SCRIPT ARGUMENTS` in a working folder."""
    command = [script, *arguments]
    with TemporaryDirectory(prefix="command-") as place:
        process = FORKING.Process(target=_run, args=(command, folder, Path(place)))
        code = _wait(process)
        stdout, stderr = (Path(place, name).read_text() for name in ("stdout", "stderr"))
    return CompletedProcess(command, code, stdout, stderr)


def _wait(process: BaseProcess) -> int:
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(command: list[str], folder: Path, place: Path) -> None:
    """Become the command, with files for its output."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(place / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).resolve().parent))
    runpy.run_path(command[0], run_name="__main__")
