"""Target `onnx`: the network as ONNX, with any number of rows, run by onnxruntime.

Files have no parts that only a debugger reads: adult's has 73 KB instead of 195 KB.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch.export import Dim

from pipelines.config.serving import Export
from pipelines.serving.export.numeric import OverRaw
from pipelines.serving.export.subject import Subject, pad_rows
from pipelines.serving.export.targets import Candidate, Run, TargetFiles, faults, silent, trace

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


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with short names for inner values, without stack traces, shapes of inner values, names of nodes and attributes that
    have their default."""
    _remove_defaults(model)
    if not _has_inner_graphs(model):
        _shorten(model)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _shorten(model: onnx.ModelProto) -> None:
    graph = model.graph
    outer_names, short = {value.name for value in (*graph.input, *graph.output)}, dict[str, str]()

    def shorten(names: Iterable[str]) -> list[str]:
        return [name if name in outer_names or not name else short.setdefault(name, f"_{len(short):x}") for name in names]

    for node in graph.node:
        node.ClearField("name")
        inputs, outputs = shorten(node.input), shorten(node.output)
        del node.input[:], node.output[:]
        node.input.extend(inputs)
        node.output.extend(outputs)
    for constant in graph.initializer:
        (constant.name,) = shorten([constant.name])
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        _remove_remarks(part)
    graph.ClearField("value_info")
    graph.ClearField("quantization_annotation")


def _remove_defaults(model: onnx.ModelProto) -> None:
    versions = {imported.domain: imported.version for imported in model.opset_import}
    for node in model.graph.node:
        if onnx.defs.has(node.op_type, node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain).attributes
            for attribute in list(node.attribute):
                if attribute.name in schema and attribute == schema[attribute.name].default_value:
                    node.attribute.remove(attribute)


def _has_inner_graphs(model: onnx.ModelProto) -> bool:
    """Whether a node has a graph of its own, such as a loop: its names cannot be changed apart from the outer ones."""
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    return bool(model.functions) or any(attribute.HasField("g") or attribute.graphs for attribute in attributes)


def _remove_remarks(part: Any) -> None:
    part.ClearField("doc_string")
    part.ClearField("metadata_props")
