"""Networks as programs of torch.export, for the exporters of torch and others; silences these, and turns their errors into one line."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram, default_decompositions

from pipelines.errors import ExportError
from pipelines.serving.export.subject import Rows, to_tensors

_NO_OPERATOR = re.compile(
    r"No ONNX function found for <OpOverload\(op='([\w.]+)'|No lowering found for\s+([\w.:]+)|Missing operator: \[\d+\] ([\w:.]+)"
)
"""Messages of torch.onnx, torchax and ExecuTorch about an operator that they lack."""
_SUMMARY = re.compile(r"(?:<class ')?([\w.]*(?:Error|Exception))(?:'>)?: (.+)")
"""A line with the class and the message of an error: the last of a traceback, or that of torch.onnx, which explains how to report it."""


@contextmanager
def silent() -> Iterator[None]:
    """Suppress the lines and warnings that torch's exporter prints for every model."""
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
    """One line for a user: the part of the network that the target cannot express, and where to read on."""
    messages, cause = list[str](), [error]
    while cause:
        inner = cause.pop()
        messages.append(str(inner))
        cause += [deeper for deeper in (inner.__cause__ or inner.__context__,) if deeper]
    text = "\n".join(messages)
    works = "docs/how-to/export.md lists the networks that work"
    if operator := _NO_OPERATOR.search(text):
        name = operator[operator.lastindex or 0].replace("::", ".")
        return f"{target} has no operator for {name} of torch; write the network without it; {works}"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    summary = next(filter(None, map(_SUMMARY.match, reversed(lines))), None)
    last = ": ".join(summary.groups()) if summary else lines[-1]
    return f"{target} cannot express the network: {last}; {works}"


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
