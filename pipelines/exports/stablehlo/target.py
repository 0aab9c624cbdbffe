"""Target `stablehlo`: for TPUs and whatever else XLA compiles for, run here on XLA's CPU backend, in an environment of its own."""

from pathlib import Path

import numpy as np

from pipelines.config.serving import Export
from pipelines.serving.export.subject import Rows, Subject, count_rows, pad_rows
from pipelines.serving.export.targets import Candidate, Environment, TargetFiles, write_with

XLA = Environment("stablehlo", "xla", ("jax", "jaxlib", "torchax"), "XLA", Path(__file__).with_name("on_xla.py"), {"JAX_PLATFORMS": "cpu"})


def write(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """Raises ExportError if the environment is not there, or if XLA lacks an operator of the network."""
    rows = settings.max_batch_rows
    run = write_with(XLA, subject, range(rows, rows + 1), folder)
    notes = (f"a batch has exactly {rows} rows, export.max_batch_rows: pad it", "the network takes encoded tensors")

    def run_padded(batch: Rows) -> np.ndarray:
        return run(pad_rows(batch, rows))[: count_rows(batch)]

    return TargetFiles({"stablehlo": Candidate(run_padded, (folder / "model.stablehlo").stat().st_size)}, notes, XLA.versions())
