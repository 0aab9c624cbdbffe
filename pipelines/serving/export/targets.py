"""Shared by the targets of an export: their results, and networks as programs of torch.export, with errors of exporters in one line."""

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram, default_decompositions

from pipelines.config.serving import EXPORTS_GROUP, Export, export_targets
from pipelines.errors import ConfigError, ExportError
from pipelines.serving.export.subject import Rows, Subject, to_tensors

Run = Callable[[Rows], np.ndarray]
"""Computes the network's output, shape (rows, …), from a batch of the columns that the written model takes."""
_NO_OPERATOR = re.compile(
    r"No ONNX function found for <OpOverload\(op='([\w.]+)'|No lowering found for\s+([\w.:]+)|Missing operator: \[\d+\] ([\w:.]+)"
)
"""Messages of torch.onnx, torchax and ExecuTorch about an operator that they lack."""
_SUMMARY = re.compile(r"(?:<class ')?([\w.]*(?:Error|Exception))(?:'>)?: (.+)")
"""A line with the class and the message of an error: the last of a traceback, or that of torch.onnx, which explains how to report it."""
_CROSS_ENTROPIES = tuple(
    getattr(torch.ops.aten, name).default
    for name in ("cross_entropy_loss", "nll_loss_nd", "nll_loss", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
)


@dataclass(frozen=True)
class Candidate:
    """A written model to compare with the one in MLflow."""

    run: Run
    bytes: int
    takes_raw_numbers: bool = False
    """Whether the columns of `Subject.numeric` are raw numbers, instead of encoded ones."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """The dtype that replaces one that the model does not take, by that."""
    rows: int | None = None
    """Rows of the test split to compare; None for all. For simulators, which take minutes for thousands of rows."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """More columns of the report, such as estimated resources."""


@dataclass(frozen=True)
class TargetFiles:
    """Result of a target."""

    candidates: Mapping[str, Candidate]
    """By name. The first one is the target's; others are for comparison."""
    notes: tuple[str, ...] = ()
    """Facts for the manifest, a sentence each."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that wrote the model and ran it, by name."""
    is_onnx: bool = False
    """Whether it is an ONNX file for raw numbers, `model.onnx`, which `predict.py` runs."""


Write = Callable[[Subject, Export, Path], TargetFiles]
"""Writes the files of a target into an empty folder."""


def target_writer(target: str) -> Write:
    """The function that writes a target. Raises ConfigError for an unknown one, and ExportError if a library that it needs is not
    installed."""
    targets = export_targets()
    if target not in targets:
        raise ConfigError(f"the target of the export is {target!r}; choose one of {', '.join(targets)}")
    module, _, function = targets[target].partition(":")
    is_own = module.partition(".")[0] == "pipelines"
    givers = [entry_point.value for entry_point in entry_points(group=EXPORTS_GROUP, name=target)]
    if not is_own and len(givers) > 1:
        raise ConfigError(f"target {target} is given by {' and '.join(givers)}; uninstall one of their packages")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pipelines":
            raise
        remedy = f"pip install 'lockstep-pipelines[{target.partition('-')[0]}]'" if is_own else f"install {error.name}"
        raise ExportError(f"--to {target} needs {error.name}, which is not installed; {remedy}") from error
    except (ImportError, AttributeError) as error:
        if is_own:
            raise
        raise ExportError(
            f"--to {target} is {targets[target]}, which cannot be imported: {error}; mend it, or uninstall its package"
        ) from error


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
