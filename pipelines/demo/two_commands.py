"""Raw data to a tracked model in the current folder, by the two commands that every pipeline takes."""

import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from pipelines.errors import ConfigError
from pipelines.runtime import atomic
from pipelines.runtime.interrupts import handle_signals

CONFIG = "digits.yaml"
_LOCKSTEP = "import sys; from pipelines.commands import main; sys.argv[0] = 'lockstep'; main()"


def run_demo(arguments: list[str]) -> None:
    """Write the demo's config into the current folder, then make its dataset version and train its model.

    `arguments` are settings for both commands. Raises ConfigError for another file of that name, and SystemExit with the exit code of a
    command that fails.
    """
    path, content = Path(CONFIG), files(__package__).joinpath(CONFIG).read_bytes()
    if path.exists() and path.read_bytes() != content:
        raise ConfigError(f"{path.absolute()} is another file than the demo's; move it, or run the demo in an empty folder")
    atomic.create_file(path, content)
    for command in ("etl", "train"):
        print(f"$ lockstep {' '.join([command, CONFIG, *arguments])}", flush=True)
        if code := _run_command([command, CONFIG, *arguments]):
            sys.exit(code)


def _run_command(arguments: list[str]) -> int:
    """The exit code of a command in a process of its own, which gets the signals that this process gets."""
    process = subprocess.Popen([sys.executable, "-c", _LOCKSTEP, *arguments])
    with handle_signals(lambda number, frame: process.send_signal(number)):
        code = process.wait()
    return code if code >= 0 else 128 + signal.Signals(-code)
