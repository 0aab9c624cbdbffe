"""Shared by the targets of an export: their results, networks as programs of torch.export, with errors of exporters in one line, and an
environment of its own, for a target whose packages cannot be installed beside Lockstep's.

The script of an environment writes and runs the model. The network goes there as a program of torch.export, and batches as files. The
script has torch and the target's packages, and nothing of Lockstep: it is called with the folder that has the program, and prints the line
`done` once the model is written. Then each line of its standard input names a file with the arrays of a batch, and one for the output,
which is there when the next `done` is printed.
"""

import logging
import os
import re
import shutil
import subprocess
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, default_decompositions

import pipelines
from pipelines.config.serving import EXPORTS_GROUP, Export, export_targets
from pipelines.errors import ConfigError, ExportError
from pipelines.serving.export.subject import Rows, Subject, pad_rows, to_tensors

PROGRAM = "program.pt2"
_REPOSITORY = Path(pipelines.__file__).parents[1]
Run = Callable[[Rows], np.ndarray]
"""Computes the network's output, shape (rows, …), from a batch of the columns that the written model takes."""
_NO_OPERATOR = re.compile(
    r"No ONNX function found for <OpOverload\(op='([\w.]+)'|No lowering found for\s+([\w.:]+)|Missing operator: \[\d+\] ([\w:.]+)"
)
"""Messages of torch.onnx, torchax and ExecuTorch about an operator that they lack."""
_SUMMARY = re.compile(r"(?:<class ')?([\w.]*(?:Error|Exception))(?:'>)?: (.+)")
"""A line with the class and the message of an error: the last of a traceback, or that of torch.onnx, which explains how to report it."""
_CROSS_ENTROPIES = tuple(
    getattr(torch.ops.aten, name).default
    for name in ("cross_entropy_loss", "nll_loss_nd", "nll_loss", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
)


@dataclass(frozen=True)
class Candidate:
    """A written model to compare with the one in MLflow."""

    run: Run
    bytes: int
    takes_raw_numbers: bool = False
    """Whether the columns of `Subject.numeric` are raw numbers, instead of encoded ones."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """The dtype that replaces one that the model does not take, by that."""
    rows: int | None = None
    """Rows of the test split to compare; None for all. For simulators, which take minutes for thousands of rows."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """More columns of the report, such as estimated resources."""


@dataclass(frozen=True)
class TargetFiles:
    """Result of a target."""

    candidates: Mapping[str, Candidate]
    """By name. The first one is the target's; others are for comparison."""
    notes: tuple[str, ...] = ()
    """Facts for the manifest, a sentence each."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that wrote the model and ran it, by name."""
    is_onnx: bool = False
    """Whether it is an ONNX file for raw numbers, `model.onnx`, which `predict.py` runs."""


Write = Callable[[Subject, Export, Path], TargetFiles]
"""Writes the files of a target into an empty folder."""


def target_writer(target: str) -> Write:
    """The function that writes a target. Raises ConfigError for an unknown one, ExportError if it needs a library that is not installed."""
    targets = export_targets()
    if target not in targets:
        raise ConfigError(f"the target of the export is {target!r}; choose one of {', '.join(targets)}")
    module, _, function = targets[target].partition(":")
    is_own = module.partition(".")[0] == "pipelines"
    givers = [entry_point.value for entry_point in entry_points(group=EXPORTS_GROUP, name=target)]
    if not is_own and len(givers) > 1:
        raise ConfigError(f"target {target} is given by {' and '.join(givers)}; uninstall one of their packages")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pipelines":
            raise
        remedy = f"pip install 'lockstep-pipelines[{target.partition('-')[0]}]'" if is_own else f"install {error.name}"
        raise ExportError(f"--to {target} needs {error.name}, which is not installed; {remedy}") from error
    except (ImportError, AttributeError) as error:
        if is_own:
            raise
        raise ExportError(
            f"--to {target} is {targets[target]}, which cannot be imported: {error}; mend it, or uninstall its package"
        ) from error


@contextmanager
def silent() -> Iterator[None]:
    """Suppress the lines and warnings that torch's exporter prints for every model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def exporter_errors(target: str) -> Iterator[None]:
    """Turn an error of an exporter into an ExportError that names the operator, if the exporter did."""
    try:
        yield
    except Exception as error:  # exporters raise anything, from RuntimeError to classes of their own
        raise ExportError(exporter_fault(target, error)) from error


def exporter_fault(target: str, error: BaseException) -> str:
    """One line for a user: the part of the network that the target cannot express, and where to read on."""
    messages, cause = list[str](), [error]
    while cause:
        inner = cause.pop()
        messages.append(str(inner))
        cause += [deeper for deeper in (inner.__cause__ or inner.__context__,) if deeper]
    text = "\n".join(messages)
    works = "docs/how-to/export.md lists the networks that work"
    if operator := _NO_OPERATOR.search(text):
        name = operator[operator.lastindex or 0].replace("::", ".")
        return f"{target} has no operator for {name} of torch; write the network without it; {works}"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    summary = next(filter(None, map(_SUMMARY.match, reversed(lines))), None)
    last = ": ".join(summary.groups()) if summary else lines[-1]
    return f"{target} cannot express the network: {last}; {works}"


def trace(network: nn.Module, rows: Rows, shapes: Mapping[str, Mapping[int, Any]] | None) -> ExportedProgram:
    """A network's program, for an example of its input. `shapes` has the dimensions whose size may change, by column; None: none may.

    Cross entropies are written in simpler operators. The exporters to ONNX and ExecuTorch keep them, and torch 2.13 gives the kept ones
    without a reduction the shape () instead of (rows,).
    """
    with torch.no_grad():
        program = torch.export.export(network, (to_tensors(rows),), dynamic_shapes=(shapes,) if shapes else None)
        if not any(node.target in _CROSS_ENTROPIES for node in program.graph.nodes):
            return program
        table = default_decompositions()
        return program.run_decompositions({operator: table[operator] for operator in _CROSS_ENTROPIES})


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
    with silent(), exporter_errors("torch.export"):
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
        raise ExportError(exporter_fault(environment.library, RuntimeError(log.read_text(encoding="utf-8", errors="replace")[-4_000:])))

    def run(batch: Rows) -> np.ndarray:
        assert script.stdin is not None
        np.savez(batch_file, **batch)  # type: ignore[arg-type]
        with suppress(BrokenPipeError):  # of a script that has ended, which `wait` reports
            script.stdin.write(f"{batch_file}\t{output_file}\n")
            script.stdin.flush()
        wait()
        return np.load(output_file)

    def end() -> None:
        script.kill()
        script.communicate()
        shutil.rmtree(drafts, ignore_errors=True)

    weakref.finalize(run, end)
    wait()
    return run
