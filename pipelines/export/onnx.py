"""Target `onnx`: the network as ONNX, with any number of rows, run by onnxruntime."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch.export import Dim

from pipelines.config.export import Export
from pipelines.errors import ExportError
from pipelines.export.numeric import OverRaw
from pipelines.export.onnx_file import save
from pipelines.export.subject import Subject, tensors
from pipelines.export.targets import Candidate, Run, Written

FILE, OUTPUT = "model.onnx", "output"
_EXAMPLE_ROWS = 3
"""More than one, which torch would take for a constant."""


def write(subject: Subject, settings: Export, folder: Path) -> Written:
    """Raises ExportError if ONNX lacks an operator of the network."""
    path = write_onnx(subject, folder / FILE)
    numeric = list(subject.numeric.encoders)
    notes = [f"the graph takes raw numbers, float64, and encodes them: {', '.join(numeric)}"] if numeric else []
    if encoded := [column.name for column in subject.columns if column.name not in numeric]:
        notes.append(f"the graph takes encoded tensors: {', '.join(encoded)}")
    return Written({"onnx": Candidate(runner(path), path.stat().st_size, takes_raw_numbers=True)}, tuple(notes))


def write_onnx(subject: Subject, path: Path) -> Path:
    """Write the network, preceded by the encoders that are arithmetic, as one ONNX file of up to 2 GB."""
    rows = subject.features(subject.numeric.raw(subject.some("test", _EXAMPLE_ROWS)))
    shapes = {name: {0: Dim("rows")} for name in rows}
    network = OverRaw(subject.network, subject.numeric).eval()
    with silent(), torch.no_grad(), faults("ONNX"):
        program = torch.onnx.export(
            network,
            (tensors(rows), {}),  # without the empty dict, torch takes the columns for keyword arguments
            dynamo=True,
            dynamic_shapes=(shapes,),
            input_names=list(rows),
            output_names=[OUTPUT],
            external_data=False,
            verbose=False,
        )
        assert program is not None
        save(program.model_proto, path)
    return path


def runner(path: Path) -> Run:
    """Runs an ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}

    def run(rows: Mapping[str, np.ndarray]) -> np.ndarray:
        return session.run(None, {name: values for name, values in rows.items() if name in names})[0]

    return run


@contextmanager
def silent() -> Iterator[None]:
    """Without the lines and warnings that torch's exporter prints for every model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def faults(target: str) -> Iterator[None]:
    """Turn an error of an exporter into an ExportError that names the operator, if the exporter did."""
    try:
        yield
    except Exception as error:  # exporters raise anything, from RuntimeError to classes of their own
        raise ExportError(fault(target, error)) from error


def fault(target: str, error: BaseException) -> str:
    """One line that says what a target cannot express, and what does work."""
    said, cause = list[str](), [error]
    while cause:
        found = cause.pop()
        said.append(str(found))
        cause += [inner for inner in (found.__cause__ or found.__context__,) if inner]
    text = "\n".join(said)
    works = "docs/export.md lists the networks that work"
    if operator := re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'|No lowering found for\s+([\w.:]+)", text):
        return f"{target} has no operator for {operator[1] or operator[2]} of torch; write the network without it; {works}"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    last = next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception): ", line)), lines[-1])
    return f"{target} cannot express the network: {last}; {works}"
