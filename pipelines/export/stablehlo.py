"""Target `stablehlo`: for TPUs and whatever else XLA compiles for, run here on XLA's CPU backend, in an environment of its own."""

import os
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

from pipelines.config.export import Export
from pipelines.errors import ExportError
from pipelines.export.exporters import fault, faults, silent
from pipelines.export.subject import Subject, rows_of, tensors
from pipelines.export.targets import Candidate, Run, Written

VARIABLE = "LOCKSTEP_XLA"
SCRIPT = Path(__file__).with_name("on_xla.py")
_REPOSITORY = Path(__file__).parents[2]


def write(subject: Subject, settings: Export, folder: Path) -> Written:
    """Raises ExportError if the environment is not there, or if XLA lacks an operator of the network."""
    python = Path(os.environ.get(VARIABLE) or _REPOSITORY / ".venv-xla/bin/python")
    if not python.exists():
        raise ExportError(
            f"--to stablehlo needs {python}, an environment with jax and torchax; make xla, or set {VARIABLE} to another Python"
        )
    rows = settings.rows_at_once
    example = dict(sorted(_padded(subject.features(subject.first_rows("test", rows)), rows).items()))  # as jax orders the keys of a dict
    with silent(), torch.no_grad(), faults("torch.export"):
        torch.export.save(torch.export.export(subject.network, (tensors(example),)), folder / "program.pt2")
    run = _started(python, folder, rows)
    (folder / "program.pt2").unlink()
    notes = (f"a batch has exactly {rows} rows, export.rows_at_once: pad it", "the network takes encoded tensors")
    return Written({"stablehlo": Candidate(run, (folder / "model.stablehlo").stat().st_size)}, notes)


def _started(python: Path, folder: Path, rows: int) -> Run:
    """Start the script of that environment. It ends when nothing refers to the returned function any more, or with this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    drafts = Path(mkdtemp(prefix="lockstep-xla-"))
    log = drafts / "log"
    with open(log, "w") as errors:
        script = subprocess.Popen(
            [str(python), str(SCRIPT), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    given, found = drafts / "given.npz", drafts / "found.npy"

    def done() -> None:
        assert script.stdout is not None
        for line in script.stdout:
            if line == "done\n":
                return
        raise ExportError(fault("XLA", RuntimeError(log.read_text()[-4_000:])))

    def run(batch: Mapping[str, np.ndarray]) -> np.ndarray:
        assert script.stdin is not None
        np.savez(given, **_padded(batch, rows))  # type: ignore[arg-type]
        with suppress(BrokenPipeError):  # of a script that has ended, which `done` says
            script.stdin.write(f"{given}\t{found}\n")
            script.stdin.flush()
        done()
        return np.load(found)[: rows_of(batch)]

    weakref.finalize(run, _end, script, drafts)
    done()
    return run


def _end(script: subprocess.Popen[str], drafts: Path) -> None:
    script.kill()
    script.communicate()
    shutil.rmtree(drafts, ignore_errors=True)


def _padded(batch: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The batch with its last row repeated."""
    missing = rows - rows_of(batch)
    return {name: np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) for name, values in batch.items()}
