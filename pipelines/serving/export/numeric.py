"""The encoders that are arithmetic on single numbers, as a part of an exported network.

Of `standardize` and `minmax` the encoder's own `transform` is traced, so there is no second formula that could differ. Its state enters
the graph as tensors of float64 and shape (1,): torch's exporter to ONNX rounds Python's numbers to float32, whatever they are added to, and
takes numbers and tensors of shape () for 0 below 1e-8, and for 1 within 1e-5 of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types
import torch
from torch import Tensor, nn

from pipelines.data.features import restore_encoder
from pipelines.data.features.numbers import Identity, Log1p, MinMax, NumberEncoder, Standardize
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import schema_from_text
from pipelines.serving.model.predictor import feature_encoders

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Numeric:
    """Encoders that are arithmetic, by tensor column, and whether their raw column has integers only."""

    encoders: Mapping[str, NumberEncoder[Any]]
    is_integer: Mapping[str, bool]

    def raw(self, rows: Arrays) -> dict[str, np.ndarray]:
        """Encoded rows with the raw numbers, float64, in place of these columns: integers exactly, others up to the rounding of the
        encoded value."""
        columns = dict(rows)
        for name, encoder in self.encoders.items():
            decoded = encoder.decode(rows[name]).astype(np.float64)
            columns[name] = np.rint(decoded) if self.is_integer[name] else decoded
        return columns

    def encode(self, raw: Arrays) -> dict[str, np.ndarray]:
        """Rows from `raw`, encoded as the model in MLflow encodes them."""
        columns = dict(raw)
        for name, encoder in self.encoders.items():
            columns[name] = encoder.encode(pa.array(raw[name])).to_numpy(zero_copy_only=False)
        return columns


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


def find_numeric(manifest: Manifest) -> Numeric:
    """The features of a manifest that are encoded by arithmetic."""
    kinds = {field.name: field.type for field in schema_from_text(manifest.raw_schema)} if manifest.raw_schema else {}
    features = feature_encoders(manifest)
    encoders, is_integer = dict[str, NumberEncoder[Any]](), dict[str, bool]()
    for name, fitted in features.items():
        encoder, kind = restore_encoder(fitted), kinds.get(fitted.inputs[0])
        # One of these classes itself: a derived one may compute anything.
        is_arithmetic = type(encoder) in (Standardize, MinMax, Log1p, Identity) and fitted.column.dtype == "float32"
        if isinstance(encoder, NumberEncoder) and is_arithmetic:
            encoders[name] = encoder
            is_integer[name] = kind is not None and (types.is_integer(kind) or types.is_boolean(kind))
    return Numeric(encoders, is_integer)


def _log1p(values: Tensor) -> Tensor:
    """The logarithm of 1 + |x|, with the sign of x. ONNX has only a logarithm, so what 1 + |x| rounds away is put back by a factor
    (Hewlett-Packard 1982, HP-15C Advanced Functions Handbook)."""
    unit, size = torch.ones(1, dtype=torch.float64), torch.abs(values)
    rounded = unit + size
    added = rounded - unit
    is_lost = added == 0
    logarithm = torch.where(is_lost, size, torch.log(rounded) * (size / torch.where(is_lost, unit, added)))
    return torch.sign(values) * torch.where(torch.isinf(size), size, logarithm)
