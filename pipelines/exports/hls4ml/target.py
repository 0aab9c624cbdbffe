"""Target `hls4ml`: C++ for high-level synthesis on FPGAs, with Vitis HLS, run here as its C simulation."""

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import hls4ml
import numpy as np
import torch
from torch import nn

from pipelines.config.serving import Export
from pipelines.errors import ExportError
from pipelines.exports.hls4ml.settings import PRECISION, Settings
from pipelines.serving.export.subject import Rows, Subject
from pipelines.serving.export.targets import Candidate, Run, TargetFiles, exporter_errors, silent

BACKEND = "Vitis"


def write(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """Raises ExportError if hls4ml lacks a layer of the network, or if g++ is missing."""
    if shutil.which("g++") is None:
        raise ExportError("--to hls4ml compiles a simulation with g++, which is not installed; apt-get install g++")
    hls: Settings = vars(settings)["hls4ml"]
    network, rows_in = _network(subject)
    candidates = {}
    for number, precision in enumerate(reversed(hls.precisions)):
        place = folder / "hls" if number == 0 else folder / f"hls-{number}"
        with silent(), exporter_errors("hls4ml"):
            model = _compile(network, rows_in(subject.first_rows("test", 1)).shape[1:], precision, hls, place)
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file() and file.suffix in (".h", ".cpp"))
        candidates[precision] = Candidate(_runner(model, rows_in), size, rows=hls.rows, about=resources(model, hls))
    largest = float(np.abs(rows_in(subject.first_rows("test", hls.rows))).max())
    notes = (
        f"compared on the first {hls.rows} rows of the test split",
        "the network takes encoded tensors, images with channels last and scaled from 0 to 1",
        "resources are estimates from the layers, not a synthesis: multipliers used at once, bits of weights",
        *overflows(hls.precisions, largest),
    )
    return TargetFiles(candidates, notes, {"hls4ml": version("hls4ml")})


def overflows(precisions: Sequence[str], largest: float) -> list[str]:
    """A line for each precision that cannot hold the largest input of the network."""
    bounds = {}
    for precision in precisions:
        unsigned, integer_bits = cast(re.Match[str], PRECISION.fullmatch(precision)).groups()
        bounds[precision] = 2.0 ** (int(integer_bits) if unsigned else int(integer_bits) - 1)
    return [
        f"the network's inputs reach {largest:g}, but {precision} holds numbers below {bound:g} only, and larger ones wrap around; "
        "give it more bits before the point, or scale the feature"
        for precision, bound in bounds.items()
        if largest >= bound
    ]


def _network(subject: Subject) -> tuple[nn.Sequential, Any]:
    """The layers that hls4ml reads, and a function that makes their input, channels first, from encoded rows."""
    model = subject.network
    layers: Any = getattr(model, "network", None) or getattr(model, "layers", None)
    if not isinstance(layers, nn.Sequential):
        raise ExportError(
            f"hls4ml takes a chain of layers, and {type(model).__name__} is none; tasks vision (small, fedavg) and tabular are, or use onnx"
        )
    into: Any = getattr(model, "pixels", None) or getattr(model, "inputs", None)

    def rows_in(rows: Rows) -> np.ndarray:
        with torch.inference_mode():
            return into({name: torch.from_numpy(np.array(values)) for name, values in subject.features(rows).items()}).contiguous().numpy()

    # Without layers that do nothing after training, which hls4ml may not know.
    return nn.Sequential(*[layer for layer in layers if not isinstance(layer, nn.Dropout)]).eval(), rows_in


def _compile(network: nn.Sequential, shape: tuple[int, ...], precision: str, settings: Settings, folder: Path) -> Any:
    config = hls4ml.utils.config_from_pytorch_model(
        network, shape, granularity="name", backend=BACKEND, default_precision=precision, channels_last_conversion="full"
    )
    config["Model"]["ReuseFactor"] = settings.reuse
    config["Model"]["Strategy"] = "Resource"
    model = hls4ml.converters.convert_from_pytorch_model(
        network,
        hls_config=config,
        output_dir=str(folder),
        backend=BACKEND,
        io_type="io_stream",
        part=settings.part,
        clock_period=settings.clock_ns,
    )
    model.compile()
    return model


def _runner(model: Any, rows_in: Any) -> Run:
    def run(rows: Mapping[str, np.ndarray]) -> np.ndarray:
        inputs = rows_in(rows)
        last = np.ascontiguousarray(np.moveaxis(inputs, 1, -1)) if inputs.ndim == 4 else inputs
        return np.asarray(model.predict(last)).reshape(len(inputs), -1)

    return run


def resources(model: Any, settings: Settings) -> dict[str, int]:
    """Multipliers at work at once, and bits of weights, from the layers: a layer with n weights has n / reuse multipliers."""
    weights = [weight for layer in model.get_layers() for weight in layer.get_weights()]
    multipliers = sum(-(-int(np.prod(weight.shape)) // settings.reuse) for weight in weights if len(weight.shape) > 1)
    bits = sum(int(np.prod(weight.shape)) * weight.type.precision.width for weight in weights)
    return {"multipliers": multipliers, "weight_bits": bits}
