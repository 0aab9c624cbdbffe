"""Target `onnx`: the network as ONNX, with any number of rows, run by onnxruntime. Target `onnx-int8`: weights and activations in 8 bits,
by onnxruntime's static quantisation.

The graph takes raw numbers, and encodes them as well. Of `standardize` and `minmax` the encoder's own `transform` is traced, so there is no
second formula that could differ. Its state enters the graph as tensors of float64 and shape (1,): torch's exporter rounds Python's numbers
to float32, whatever they are added to, and takes numbers and tensors of shape () for 0 below 1e-8, and for 1 within 1e-5 of it.

Files have no parts that only a debugger reads: adult's has 73 KB instead of 195 KB.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn
from torch.export import Dim

from pipelines.config.serving import Export
from pipelines.data.features.numbers import Log1p, NumberEncoder
from pipelines.serving.export.subject import Numeric, Rows, Subject, count_rows, pad_rows
from pipelines.serving.export.targets import Candidate, Run, TargetFiles, exporter_errors, silent, trace

FILE, OUTPUT = "model.onnx", "output"
_EXAMPLE_ROWS = 3
"""More than one, which torch would take for a constant."""
_BATCH_ROWS = 64
_QUANTISED = ("Conv", "Gather", "Gemm", "MatMul")
"""Operators with weights. Each has one scale: the scales of channels would be 1 % more of adult's small file."""


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


def write_int8(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """The network with weights and activations in 8 bits. Raises ExportError if ONNX lacks an operator of the network."""
    rows = subject.features(subject.numeric.raw(subject.first_rows("train", settings.calibration_rows)))
    with TemporaryDirectory() as drafts:
        wide = write_onnx(subject, Path(drafts, FILE))
        prepared = Path(drafts, "prepared.onnx")
        quantised = Path(drafts, "quantised.onnx")
        with silent(), exporter_errors("onnxruntime's quantisation"):
            quant_pre_process(str(wide), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(quantised),
                CalibrationRows(rows, _BATCH_ROWS),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(_QUANTISED),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        model = onnx.load(quantised)
        _look_up_bytes(model.graph)
        save(model, folder / FILE)
        candidates = {
            "onnx-int8": Candidate(runner(folder / FILE), (folder / FILE).stat().st_size, takes_raw_numbers=True),
            "onnx": Candidate(runner(wide), wide.stat().st_size, takes_raw_numbers=True),
        }
    note = f"activations were calibrated with {count_rows(rows)} rows of the training split"
    return TargetFiles(candidates, (note,), is_onnx=True, versions=onnx_versions())


class CalibrationRows(CalibrationDataReader):
    """Batches of raw rows."""

    def __init__(self, rows: dict[str, np.ndarray], batch_rows: int) -> None:
        starts = range(0, count_rows(rows), batch_rows)
        self._batches: Iterator[dict[str, np.ndarray]] = iter(
            [{name: values[start : start + batch_rows] for name, values in rows.items()} for start in starts]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def onnx_versions() -> dict[str, str]:
    """Versions of the packages that write ONNX and run it."""
    return {name: version(name) for name in ("onnx", "onnxscript", "onnxruntime")}


def write_onnx(subject: Subject, path: Path) -> Path:
    """Write the network, preceded by the encoders that are arithmetic, as one ONNX file of up to 2 GB."""
    first = subject.first_rows("test", _EXAMPLE_ROWS)
    rows = subject.features(subject.numeric.raw(pad_rows(first, _EXAMPLE_ROWS)))
    shapes = {name: {0: Dim("rows")} for name in rows}
    network = OverRaw(subject.network, subject.numeric).eval()
    with silent(), exporter_errors("ONNX"):
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


class OverRaw(nn.Module):
    """A network that takes raw numbers, float64, in the columns of `numeric`, and its own columns otherwise."""

    def __init__(self, network: nn.Module, numeric: Numeric) -> None:
        super().__init__()
        self.network = network
        # A list, because a ModuleDict refuses columns with the name of one of its methods, such as `type`.
        self._names, self._encoders = list(numeric.encoders), nn.ModuleList(map(NumberGraph, numeric.encoders.values()))

    def forward(self, rows: dict[str, Tensor]) -> Tensor:
        encoded = {name: encode(rows[name]) for name, encode in zip(self._names, self._encoders, strict=True)}
        return self.network({**rows, **encoded})


class NumberGraph(nn.Module):
    """Encodes float64 of shape (rows,) like `NumberEncoder.encode`, except that a row that it refuses becomes NaN or infinite."""

    def __init__(self, encoder: NumberEncoder[Any]) -> None:
        super().__init__()
        for name, value in encoder.state.items():
            if isinstance(value, (int, float)):
                self.register_buffer(name, torch.tensor([value], dtype=torch.float64))
        self._encoder = encoder

    def forward(self, values: Tensor) -> Tensor:
        state = dict(self.named_buffers())
        if "impute" in state:
            values = torch.where(torch.isnan(values), state["impute"], values)
        if isinstance(self._encoder, Log1p):
            return _log1p(values).float()
        transform: Any = type(self._encoder)(self._encoder.settings, state).transform
        return transform(values).float()


def _log1p(values: Tensor) -> Tensor:
    """The logarithm of 1 + |x|, with the sign of x. ONNX has only a logarithm, so what 1 + |x| rounds away is put back by a factor
    (Hewlett-Packard 1982, HP-15C Advanced Functions Handbook)."""
    unit, size = torch.ones(1, dtype=torch.float64), torch.abs(values)
    rounded = unit + size
    added = rounded - unit
    is_lost = added == 0
    logarithm = torch.where(is_lost, size, torch.log(rounded) * (size / torch.where(is_lost, unit, added)))
    return torch.sign(values) * torch.where(torch.isinf(size), size, logarithm)


def runner(path: Path) -> Run:
    """Runs an ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {graph_input.name for graph_input in session.get_inputs()}

    def run(rows: Rows) -> np.ndarray:
        return session.run(None, {name: values for name, values in rows.items() if name in names})[0]

    return run


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with short names for inner values, without stack traces, shapes of inner values, names of nodes and attributes that
    have their default."""
    versions = {imported.domain: imported.version for imported in model.opset_import}
    for node in model.graph.node:
        if onnx.defs.has(node.op_type, node.domain):
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain).attributes
            for attribute in list(node.attribute):
                if attribute.name in schema and attribute == schema[attribute.name].default_value:
                    node.attribute.remove(attribute)
    # A node may have a graph of its own, such as a loop: its names cannot be changed apart from the outer ones.
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    if not model.functions and not any(attribute.HasField("g") or attribute.graphs for attribute in attributes):
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
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    graph.ClearField("value_info")
    graph.ClearField("quantization_annotation")


def _look_up_bytes(graph: onnx.GraphProto) -> None:
    """Make embeddings look up bytes. onnxruntime's quantisation makes floats of the entire table, and bytes of the result."""
    producers = {output: node for node in graph.node for output in node.output}
    uses = Counter(name for node in graph.node for name in node.input)
    for back in [node for node in graph.node if node.op_type == "QuantizeLinear"]:
        gather = producers.get(back.input[0])
        table = producers.get(gather.input[0]) if gather is not None and gather.op_type == "Gather" else None
        if gather is None or table is None or table.op_type != "DequantizeLinear" or table.input[1:] != back.input[1:]:
            continue
        if uses[gather.output[0]] == uses[table.output[0]] == 1:
            gather.input[0], gather.output[0] = table.input[0], back.output[0]
            graph.node.remove(table)
            graph.node.remove(back)
