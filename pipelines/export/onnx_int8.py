"""Target `onnx-int8`: weights and activations in 8 bits, by onnxruntime's static quantisation."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from pipelines.config.export import Export
from pipelines.export.exporters import faults, silent
from pipelines.export.onnx import FILE, runner, write_onnx
from pipelines.export.onnx_file import save
from pipelines.export.subject import Subject, rows_of
from pipelines.export.targets import Candidate, Written

_ROWS_AT_ONCE = 64
_QUANTISED = ("Conv", "Gather", "Gemm", "MatMul")
"""Operators with weights. Each has one scale: with one for each channel, adult's file would be 0.32 of the file in floats, instead of
0.31."""


class Rows(CalibrationDataReader):
    """Batches of raw rows."""

    def __init__(self, rows: dict[str, np.ndarray], rows_at_once: int) -> None:
        starts = range(0, rows_of(rows), rows_at_once)
        self._batches: Iterator[dict[str, np.ndarray]] = iter(
            [{name: values[start : start + rows_at_once] for name, values in rows.items()} for start in starts]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def write(subject: Subject, settings: Export, folder: Path) -> Written:
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
                Rows(rows, _ROWS_AT_ONCE),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(_QUANTISED),
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        save(onnx.load(quantised), folder / FILE)
        candidates = {
            "onnx-int8": Candidate(runner(folder / FILE), (folder / FILE).stat().st_size, takes_raw_numbers=True),
            "onnx": Candidate(runner(wide), wide.stat().st_size, takes_raw_numbers=True),
        }
    return Written(candidates, (f"activations were calibrated with {rows_of(rows)} rows of the training split",))
