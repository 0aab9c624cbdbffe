"""Target `onnx`: the network as ONNX, with any number of rows, run by onnxruntime."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch.export import Dim

from pipelines.config.export import Export
from pipelines.serving.export.exporters import faults, silent
from pipelines.serving.export.numeric import OverRaw
from pipelines.serving.export.onnx_file import save
from pipelines.serving.export.subject import Subject, pad_rows
from pipelines.serving.export.targets import Candidate, Run, TargetFiles
from pipelines.serving.export.tracing import trace

FILE, OUTPUT = "model.onnx", "output"
_EXAMPLE_ROWS = 3
"""More than one, which torch would take for a constant."""


def write(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """Raises ExportError if ONNX lacks an operator of the network."""
    path = write_onnx(subject, folder / FILE)
    numeric = list(subject.numeric.encoders)
    notes = [f"the graph takes raw numbers, float64, and encodes them: {', '.join(numeric)}"] if numeric else []
    if encoded := [column.name for column in subject.columns if column.name not in numeric]:
        notes.append(f"the graph takes encoded tensors: {', '.join(encoded)}")
    return TargetFiles(
        {"onnx": Candidate(runner(path), path.stat().st_size, takes_raw_numbers=True)}, tuple(notes), is_onnx=True, versions=onnx_versions()
    )


def onnx_versions() -> dict[str, str]:
    """Versions of the packages that write ONNX and run it."""
    return {name: version(name) for name in ("onnx", "onnxscript", "onnxruntime")}


def write_onnx(subject: Subject, path: Path) -> Path:
    """Write the network, preceded by the encoders that are arithmetic, as one ONNX file of up to 2 GB."""
    first = subject.first_rows("test", _EXAMPLE_ROWS)
    rows = subject.features(subject.numeric.raw(pad_rows(first, _EXAMPLE_ROWS)))
    shapes = {name: {0: Dim("rows")} for name in rows}
    network = OverRaw(subject.network, subject.numeric).eval()
    with silent(), faults("ONNX"):
        program = torch.onnx.export(
            trace(network, rows, shapes),
            dynamo=True,
            dynamic_shapes=(shapes,),  # for the names of dimensions
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
    names = {graph_input.name for graph_input in session.get_inputs()}

    def run(rows: Mapping[str, np.ndarray]) -> np.ndarray:
        return session.run(None, {name: values for name, values in rows.items() if name in names})[0]

    return run
