"""The functions that write targets, and their results; `config.export` lists the targets by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config.serving import EXPORTS, Export
from pipelines.errors import ConfigError, ExportError
from pipelines.serving.export.subject import Subject

Run = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""Computes the network's output, shape (rows, …), from a batch of the columns that the written model takes."""


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
    if target not in EXPORTS:
        raise ConfigError(f"the target of the export is {target!r}; choose one of {', '.join(EXPORTS)}")
    try:
        return import_module(EXPORTS[target]).write
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pipelines":
            raise
        extra = target.partition("-")[0]
        raise ExportError(f"--to {target} needs {error.name}, which is not installed; pip install 'lockstep-pipelines[{extra}]'") from error
