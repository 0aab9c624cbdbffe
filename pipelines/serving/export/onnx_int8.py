"""Target `onnx-int8`: weights and activations in 8 bits, by onnxruntime's static quantisation."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from pipelines.config.serving import Export
from pipelines.serving.export.onnx import FILE, onnx_versions, runner, save, write_onnx
from pipelines.serving.export.subject import Subject, count_rows
from pipelines.serving.export.targets import Candidate, TargetFiles, faults, silent

_BATCH_ROWS = 64
_QUANTISED = ("Conv", "Gather", "Gemm", "MatMul")
"""Operators with weights. Each has one scale: the scales of channels would be 1 % more of adult's small file."""


class CalibrationRows(CalibrationDataReader):
    """Batches of raw rows."""

    def __init__(self, rows: dict[str, np.ndarray], batch_rows: int) -> None:
        starts = range(0, count_rows(rows), batch_rows)
        self._batches: Iterator[dict[str, np.ndarray]] = iter(
            [{name: values[start : start + batch_rows] for name, values in rows.items()} for start in starts]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def write(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """Raises ExportError if ONNX lacks an operator of the network."""
    rows = subject.features(subject.numeric.raw(subject.first_rows("train", settings.calibration_rows)))
    with TemporaryDirectory() as drafts:
        wide = write_onnx(subject, Path(drafts, FILE))
        prepared = Path(drafts, "prepared.onnx")
        quantised = Path(drafts, "quantised.onnx")
        with silent(), faults("onnxruntime's quantisation"):
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
