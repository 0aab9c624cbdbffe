"""Networks as programs of torch.export, from which each exporter makes its own format."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram, default_decompositions

from pipelines.serving.export.subject import Rows, to_tensors

_aten = torch.ops.aten
_CROSS_ENTROPIES = (
    _aten.cross_entropy_loss.default,
    _aten.nll_loss_nd.default,
    _aten.nll_loss.default,
    _aten.nll_loss2d.default,
    _aten.nll_loss_forward.default,
    _aten.nll_loss2d_forward.default,
)


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
