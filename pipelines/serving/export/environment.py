"""An environment of its own, for a target whose packages cannot be installed beside Lockstep's; its script writes and runs the model.

The network goes there as a program of torch.export, and batches as files. The script has torch and the target's packages, and nothing
of Lockstep: it is called with the folder that has the program, and prints the line `done` once the model is written. Then each line of
its standard input names a file with the arrays of a batch, and one for the output, which is there when the next `done` is printed.
"""

import os
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from torch.export import Dim

import pipelines
from pipelines.errors import ExportError
from pipelines.serving.export.subject import Rows, Subject, pad_rows
from pipelines.serving.export.targets import Run, fault, faults, silent, trace

PROGRAM = "program.pt2"
_REPOSITORY = Path(pipelines.__file__).parents[1]


@dataclass(frozen=True)
class Environment:
    """`make NAME` makes it, in .venv-NAME; the variable LOCKSTEP_NAME names another Python that has the packages."""

    target: str
    name: str
    packages: tuple[str, ...]
    library: str
    """Its name in messages of errors."""
    script: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the script, besides those of this process without PYTHONPATH."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """The dtype that replaces one that the library lacks, by that."""

    def python(self) -> Path:
        """Raises ExportError if the environment is not there."""
        variable = f"LOCKSTEP_{self.name.upper()}"
        path = Path(os.environ.get(variable) or _REPOSITORY / f".venv-{self.name}/bin/python")
        if not path.exists():
            raise ExportError(
                f"--to {self.target} needs {path}, a Python with {', '.join(self.packages)}, which does not exist; "
                f"run make {self.name} in the repository, or set {variable} to such a Python"
            )
        return path

    def command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """The command and the environment variables of a process there."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(self.variables)
        # -P: the script's folder has modules with the names of libraries.
        return [str(self.python()), "-P", *arguments], variables

    def versions(self) -> dict[str, str]:
        """Versions of torch and the packages, as they are installed there."""
        names = ("torch", *self.packages)
        code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
        command, variables = self.command("-c", code, *names)
        output = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
        return dict(zip(names, output.split(), strict=True))

    def cast(self, batch: Rows) -> dict[str, np.ndarray]:
        """The batch in the dtypes that the network takes there."""
        return {name: values.astype(self.dtypes.get(str(values.dtype), values.dtype), copy=False) for name, values in batch.items()}


def write_with(environment: Environment, subject: Subject, rows: range, folder: Path) -> Run:
    """Let the environment's script write the network into `folder`, for batches of any number of rows in a range. Returns a function
    that runs it there. The script ends once nothing refers to that function.

    Raises ExportError if the environment is not there, or if its library lacks an operator of the network.
    """
    environment.python()  # before the export, which may take minutes
    # jax sorts the keys of a dict. ExecuTorch takes the example's number of rows for the greatest, whatever range is given to torch.
    fewest, most = rows[0], rows[-1]
    example = dict(sorted(pad_rows(environment.cast(subject.features(subject.first_rows("test", most))), most).items()))
    shapes = None if fewest == most else {name: {0: Dim("rows", min=fewest, max=most)} for name in example}
    with silent(), faults("torch.export"):
        torch.export.save(trace(subject.network, example, shapes), folder / PROGRAM)
    try:
        run = start_script(environment, folder)
    finally:
        (folder / PROGRAM).unlink()
    return lambda batch: run(environment.cast(batch))


def start_script(environment: Environment, folder: Path) -> Run:
    """Start the script. It ends when nothing refers to the returned function, or with this process."""
    drafts = Path(mkdtemp(prefix=f"lockstep-{environment.name}-"))
    log = drafts / "log"
    command, variables = environment.command(str(environment.script), str(folder))
    with open(log, "w", encoding="utf-8") as errors:
        script = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables)
    batch_file, output_file = drafts / "given.npz", drafts / "found.npy"

    def wait() -> None:
        assert script.stdout is not None
        for line in script.stdout:
            if line == "done\n":
                return
        raise ExportError(fault(environment.library, RuntimeError(log.read_text(encoding="utf-8", errors="replace")[-4_000:])))

    def run(batch: Rows) -> np.ndarray:
        assert script.stdin is not None
        np.savez(batch_file, **batch)  # type: ignore[arg-type]
        with suppress(BrokenPipeError):  # of a script that has ended, which `wait` reports
            script.stdin.write(f"{batch_file}\t{output_file}\n")
            script.stdin.flush()
        wait()
        return np.load(output_file)

    weakref.finalize(run, _end, script, drafts)
    wait()
    return run


def _end(script: subprocess.Popen[str], drafts: Path) -> None:
    script.kill()
    script.communicate()
    shutil.rmtree(drafts, ignore_errors=True)
